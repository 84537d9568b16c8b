"""The port and signals of `keras-vit serve`."""

import dataclasses
import signal
import socket
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from PIL import Image

from keras_vit.environment import backend
from keras_vit.errors import ConfigError
from keras_vit.serving.settings import Settings
from keras_vit.sources.source import Source

_BACKLOG = 2048  # uvicorn's own


def run(
    source: Source,
    host: str,
    port: int,
    settings: Settings,
    access_log: bool,
    announce: Callable[[str], Any],
) -> None:
    """Serves until a signal; see `keras_vit.serving.serve`."""
    settings = dataclasses.replace(
        settings, allowed_hosts=("localhost", host, *settings.allowed_hosts)
    )
    with _listen(host, port) as listening:
        backend.start()
        from keras_vit.model import VisionTransformer
        from keras_vit.serving.routes import build_application

        # The answer 413 tells the client of too many pixels; Pillow need not warn of them too.
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        app = build_application(VisionTransformer.from_preset(source), settings)
        server = uvicorn.Server(configuration(app, settings, access_log))
        shown_host = f"[{host}]" if ":" in host else host
        announce(f"Serving {source} at http://{shown_host}:{listening.getsockname()[1]}")
        with _sigterm_ends_quietly():
            server.run([listening])


def configuration(app: Any, settings: Settings, access_log: bool = False) -> uvicorn.Config:
    """Returns the configuration of uvicorn for an application and its limits."""
    return uvicorn.Config(
        app,
        http="h11",
        ws="none",
        lifespan="on",
        log_level="info" if access_log else "warning",
        access_log=access_log,
        server_header=False,
        limit_concurrency=settings.max_connections,
        timeout_graceful_shutdown=settings.drain,
    )


def _listen(host: str, port: int) -> socket.socket:
    """Returns a socket that listens; it holds early clients until uvicorn starts."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except (OSError, OverflowError, TypeError) as error:  # TypeError: a host that is no UTF-8
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(
            f"host={host!r}, port={port}: the server cannot listen at this address ({reason}). "
            "Choose another port, of which 0 takes any that is free, or another host."
        ) from error


@contextmanager
def _sigterm_ends_quietly() -> Iterator[None]:
    """Ignores the signal that uvicorn raises again at its end, so that the exit status is 0."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
