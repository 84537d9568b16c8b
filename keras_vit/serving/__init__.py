"""A model behind an HTTP address: `keras-vit serve`.

`settings` are the limits, `bodies` reads images out of requests, and `engine` is the model's part.
`batching` computes the images of several requests at once. `routes` is the HTTP interface, `hosts`
the names of the server, `server` the port and signals.

The room stands on FastAPI and uvicorn. LitServe 0.2.19, which stands on both too, keeps less than
is promised here: its queue has no bound, so there is no 429; SIGTERM ends its main process without
an answer to the requests that were accepted; a body is a form or JSON, never the bytes of an image;
and its processes hand each other pickles, which keras_vit never reads.
"""

import importlib.util
import os
from typing import Any

from keras_vit.errors import ConfigError
from keras_vit.serving.settings import Settings

__all__ = ["Settings", "application", "serve"]


def application(model: Any, settings: Settings | None = None) -> Any:
    """Returns the server's ASGI application, for an ASGI server of your own.

    Args:
        model: a `VisionTransformer`.
        settings: the limits; None for the defaults.

    Returns:
        A `fastapi.FastAPI`. The model computes between its lifespan's startup and shutdown.

    Raises:
        ConfigError: the extra `serve` is not installed; or the model takes no image files.
    """
    check_installed()
    from keras_vit.serving.routes import build_application

    return build_application(model, settings or Settings())


def serve(
    source: str | os.PathLike[str],
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    settings: Settings | None = None,
    access_log: bool = False,
    announce: Any = print,
) -> None:
    """Serves a model over HTTP until SIGTERM or Ctrl-C; returns when all is answered.

    Args:
        source: as for `VisionTransformer.from_preset`.
        host: the address to listen at; `"0.0.0.0"` for every address of the machine.
        port: 0 for any that is free.
        settings: the limits; None for the defaults.
        access_log: whether a line is logged for each request.
        announce: called with a sentence that holds the address.

    Raises:
        ConfigError: the extra `serve` is not installed, the server cannot listen at the address, or
            the model takes no image files.
        PresetError, CheckpointError: as `VisionTransformer.from_preset`.
    """
    check_installed()
    from keras_vit.serving import server

    server.run(source, host, port, settings or Settings(), access_log, announce)


def check_installed() -> None:
    """Returns if the libraries of the room are installed; raises `ConfigError` otherwise."""
    names = ("fastapi", "fastapi_offline", "uvicorn", "python_multipart")
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"Serving needs {', '.join(missing)}, which is not installed: "
            "pip install 'keras-vit[serve]'."
        )
