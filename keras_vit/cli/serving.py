"""The command that puts a model behind an HTTP address."""

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

    POST /classify, POST /embed, GET /healthz, GET /metadata, a page on which one drops an image
    at /, and the interface at /docs. SIGTERM and Ctrl-C let the accepted requests be answered
    first.

    Args:
        source: a name, a file or folder, or hf://owner/repo.
        host: address to listen at.
        port: 0 for any.
        allowed_hosts: names of the server beside --host and localhost; '*' for every name.
        max_batch: most images of one step.
        batch_wait: milliseconds that an image waits for others.
        max_bytes: most bytes of a request's body.
        max_pixels: most pixels of an image; 89,478,485 by default.
        max_queue: most images that may wait.
        timeout: seconds for an answer.
        access_log: log a line for each request.
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
