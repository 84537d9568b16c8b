"""The port and signals of `keras-vit serve`."""

import asyncio
import functools
import ipaddress
import signal
import socket
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import h11
import uvicorn
from PIL import Image
from uvicorn.protocols.http.h11_impl import H11Protocol

from keras_vit.errors import ConfigError
from keras_vit.presets.source import Source
from keras_vit.serving.settings import Settings
from keras_vit.support.text import log, visible

_BACKLOG = 2048  # uvicorn's own


def run(
    build: Callable[[], Any],
    source: Source,
    host: str,
    port: int,
    settings: Settings,
    access_log: bool,
    progress: bool,
) -> None:
    """Serves an application until a signal; see `keras_vit.serve`.

    Args:
        build: makes the application once the port is taken.
        source, host, port, settings, access_log, progress: as for `keras_vit.serve`.
    """
    with _listen(host, port) as listening:
        # The answer 413 tells the client of too many pixels; Pillow need not warn of them too.
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        server = uvicorn.Server(configuration(build(), settings, access_log))
        address, own_port = listening.getsockname()[:2]
        shown_host = f"[{host}]" if ":" in host else host
        if progress:
            print(f"Serving {visible(source)} at http://{shown_host}:{own_port}")
        if not ipaddress.ip_address(address).is_loopback:
            log.warning(
                "Other machines reach this address: put a proxy with TLS, passwords and a limit of "
                "connections per client in front."
            )
        with _sigterm_ends_quietly():
            server.run([listening])


class _Connection(H11Protocol):
    """A connection that is closed if its client takes too long to send, or to read an answer.

    uvicorn limits only the time between an answer and the next byte, and not the header of a
    request, the rest of a body that was answered already, or the reading of an answer.

    Args:
        seconds: time for each of the three.
        arguments, options: as for `H11Protocol`.
    """

    def __init__(self, seconds: float, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._seconds = seconds
        self._limit: asyncio.TimerHandle | None = None

    def _watch(self) -> None:
        """Starts the limit where only the client is awaited, and ends it otherwise."""
        states = self.conn.their_state, self.conn.our_state
        is_awaited = states[0] is h11.IDLE or states == (h11.SEND_BODY, h11.DONE)
        is_awaited = is_awaited or self.flow.write_paused
        if self._limit is None and is_awaited:
            # `close` would wait until the client has read its answers.
            self._limit = self.loop.call_later(self._seconds, self.transport.abort)
        elif self._limit is not None and not is_awaited:
            self._limit.cancel()
            self._limit = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._limit is not None:
            self._limit.cancel()


def configuration(app: Any, settings: Settings, access_log: bool = False) -> uvicorn.Config:
    """Returns the configuration of uvicorn for an application and its limits."""
    return uvicorn.Config(
        app,
        http=functools.partial(_Connection, settings.read_timeout),
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
    except (OSError, OverflowError, TypeError) as error:  # TypeError: a host name that is not UTF-8
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
