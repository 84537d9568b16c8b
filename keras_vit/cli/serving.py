"""The command that puts a model behind an HTTP address."""

import argparse
from typing import Any

from keras_vit.cli.console import console, positive
from keras_vit.environment import backend


def seconds(text: str) -> float:
    """Parses an argument that is a number above 0."""
    number = float(text)
    if not number > 0:
        raise argparse.ArgumentTypeError(f"{number} is not above 0")
    return number


def add(commands: Any) -> None:
    """Adds serve."""
    command = commands.add_parser(
        "serve",
        help="answer HTTP requests for labels and features",
        description="Serves a model over HTTP: POST /classify, POST /embed, GET /healthz, "
        "GET /metadata, a page on which one drops an image at /, and the interface at /docs. "
        "SIGTERM and Ctrl-C let the accepted requests be answered first.",
    )
    command.add_argument("source", help="a name, a file or folder, or hf://owner/repo")
    command.add_argument(
        "--host", default="127.0.0.1", help="address to listen at (default 127.0.0.1)"
    )
    command.add_argument("--port", type=int, default=8000, help="0 for any (default 8000)")
    command.add_argument(
        "--allowed-hosts",
        nargs="+",
        default=[],
        metavar="NAME",
        help="names of the server beside --host and localhost; '*' for every name",
    )
    command.add_argument(
        "--processes", type=positive, default=1, help="each loads the model (default 1)"
    )
    command.add_argument(
        "--max-batch", type=positive, default=16, help="images at once (default 16)"
    )
    command.add_argument(
        "--batch-wait",
        type=float,
        default=5.0,
        metavar="MS",
        help="milliseconds that an image waits for others (default 5)",
    )
    command.add_argument(
        "--max-bytes", type=positive, default=10 * 2**20, help="of a body (default 10 MiB)"
    )
    command.add_argument("--max-pixels", type=positive, help="of an image (default 89,478,485)")
    command.add_argument(
        "--max-queue", type=positive, default=128, help="images that may wait (default 128)"
    )
    command.add_argument(
        "--timeout", type=seconds, default=30.0, help="seconds for an answer (default 30)"
    )
    command.add_argument("--access-log", action="store_true", help="log a line for each request")
    command.set_defaults(run=_serve, go_on="What was accepted has been answered.")


def _serve(arguments: argparse.Namespace) -> None:
    from keras_vit.checkpoints import Source
    from keras_vit.serving import Settings, check_installed, serve

    check_installed()
    Source.of(arguments.source)  # an unknown name is refused before a backend starts
    backend.start()
    settings = Settings(
        max_batch=arguments.max_batch,
        batch_wait=arguments.batch_wait / 1000,
        max_bytes=arguments.max_bytes,
        max_pixels=arguments.max_pixels,
        max_queue=arguments.max_queue,
        timeout=arguments.timeout,
        allowed_hosts=("localhost", *arguments.allowed_hosts),
    )
    serve(
        arguments.source,
        host=arguments.host,
        port=arguments.port,
        processes=arguments.processes,
        settings=settings,
        access_log=arguments.access_log,
        announce=lambda text: console.print(text, soft_wrap=True),
    )
