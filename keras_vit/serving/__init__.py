"""An HTTP server for a model: `keras-vit serve`.

`settings` has the limits, `bodies` reads the images of a request, and `engine` prepares and
computes them. `batching` computes the images of several requests at once. `routes` is the HTTP
interface, which `interface.json` describes for `/docs`. `hosts` checks the names of the server, and
`server` has the port and signals.

The server uses FastAPI and uvicorn. LitServe 0.2.19 uses both too, but its queue is unlimited, so
that it never answers 429; SIGTERM ends its main process before accepted requests are answered; a
body is a form or JSON, never the bytes of an image; and its processes exchange pickles.
"""

import dataclasses
import os
from typing import Any

from keras_vit.config.pool import STAGE_POOLINGS, StagePooling
from keras_vit.models.building import Reading
from keras_vit.serving.settings import Settings
from keras_vit.support.extras import import_extra

__all__ = ["Settings", "application"]
__dir__ = __all__.copy


def application(
    model: Any,
    settings: Settings | None = None,
    *,
    stage: str | None = None,
    pooling: StagePooling | None = None,
) -> Any:
    """Returns the server's ASGI application, to run in your own ASGI server.

    Args:
        model: a `VisionTransformer`.
        settings: the limits; None for the defaults.
        stage, pooling: the features that `/embed` answers with, as in `evaluation.features`.

    Returns:
        A `fastapi.FastAPI`. The model computes between its lifespan's startup and shutdown.

    Raises:
        ConfigError: the extra `serve` is not installed; or the model takes no image files, or has
            no such stage or pooling.
    """
    check_installed()
    from keras_vit.serving.routes import build_application

    return build_application(model, settings or Settings(), stage, pooling)


def serve(
    source: str | os.PathLike[str],
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    settings: Settings | None = None,
    pixel_range: tuple[float, float] | None = None,
    draft: bool = False,
    stage: str | None = None,
    pooling: StagePooling | None = None,
    access_log: bool = False,
    progress: bool = False,
    read: Reading | None = None,
    **fields: Any,
) -> None:
    """Serves a model over HTTP until SIGTERM or Ctrl-C; accepted requests are answered first.

    Args:
        source: as for `VisionTransformer.from_preset`.
        host: the address to listen at; `"0.0.0.0"` for every address of the machine.
        port: the port to listen at; 0 for any free port.
        settings: the limits; None for the defaults.
        pixel_range: values of black and white in images of more than 8 bits, see `Preprocessor`.
        draft: whether large JPEG files are decoded at a reduced scale, see `Preprocessor`.
        stage, pooling: the features that `/embed` answers with, as in `evaluation.features`.
        access_log: whether a line is logged for each request.
        progress: whether the address is printed once the server listens.
        read: as for `VisionTransformer.from_preset`.
        **fields: its other arguments, such as `image_size` and `dtype`.

    Raises:
        ConfigError: the extra `serve` is not installed, the server cannot listen at the address, or
            the model takes no image files or has no such stage or pooling.
        PresetError, CheckpointError: as `VisionTransformer.from_preset`.
    """
    from keras_vit.presets.source import Source

    found = Source.parse(source)  # an unknown name is refused before a backend starts
    check_installed()
    STAGE_POOLINGS.check("pooling", pooling)  # before a model is loaded
    from keras_vit.checkpoints.loading import load_to_answer
    from keras_vit.serving import server
    from keras_vit.support import backend

    settings = settings or Settings()
    hosts = ("localhost", host, *settings.allowed_hosts)
    settings = dataclasses.replace(settings, allowed_hosts=hosts)

    def build() -> Any:
        backend.start()
        model = load_to_answer(found, pixel_range=pixel_range, draft=draft, read=read, **fields)
        return application(model, settings, stage=stage, pooling=pooling)

    server.run(build, found, host, port, settings, access_log, progress)


def check_installed() -> None:
    """Raises `ConfigError` if a library of the extra `serve` is not installed."""
    for module in ("fastapi", "fastapi_offline", "uvicorn", "python_multipart"):
        import_extra(module, "serve", "Serving")
