"""The command `keras-vit serve`."""

from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from keras_vit.cli.console import start_backend, tell
from keras_vit.cli.options import Positive


def serve(
    source: str,
    /,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    allowed_hosts: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    max_batch: Positive = 16,
    batch_wait: float = 5.0,
    max_bytes: Positive = 10 * 2**20,
    max_pixels: Positive | None = None,
    max_queue: Positive = 128,
    timeout: Annotated[float, Parameter(validator=Number(gt=0))] = 30.0,
    access_log: bool = False,
) -> None:
    """Answer HTTP requests for labels and features.

    The server has POST /classify, POST /embed, GET /healthz, GET /metadata, a page for dropped
    images at /, and the interface at /docs. SIGTERM and Ctrl-C end it after it has answered the
    accepted requests.

    Args:
        source: name of a preset, path of a file or folder, or hf://owner/repo.
        host: address at which the server listens.
        port: port at which the server listens; 0 for any free port.
        allowed_hosts: further names by which clients may call the server; '*' for every name.
        max_batch: largest number of images in a batch.
        batch_wait: milliseconds that an image waits for others of its batch.
        max_bytes: largest number of bytes in the body of a request.
        max_pixels: largest number of pixels of an image; by default 89,478,485.
        max_queue: largest number of images that wait; a request beyond it gets status 429.
        timeout: seconds after which a request without an answer gets status 503.
        access_log: print a line for each request.
    """
    from keras_vit.checkpoints import Source
    from keras_vit.serving import Settings, check_installed
    from keras_vit.serving import serve as serve_model

    check_installed()
    Source.of(source)  # an unknown name is refused before a backend starts
    start_backend()
    settings = Settings(
        max_batch=max_batch,
        batch_wait=batch_wait / 1000,
        max_bytes=max_bytes,
        max_pixels=max_pixels,
        max_queue=max_queue,
        timeout=timeout,
        allowed_hosts=("localhost", *(allowed_hosts or ())),
    )
    serve_model(
        source,
        host=host,
        port=port,
        settings=settings,
        access_log=access_log,
        announce=tell,
    )
