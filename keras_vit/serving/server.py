"""Processes, the port and signals of `keras-vit serve`."""

import dataclasses
import functools
import os
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from PIL import Image
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import Multiprocess

from keras_vit.errors import ConfigError, KerasViTError
from keras_vit.serving.connections import PatientProtocol
from keras_vit.serving.settings import Settings
from keras_vit.text import visible

_SECONDS_TO_SIGN_LIFE = 60  # a process that compiles a large model answers late


def run(
    source: str | os.PathLike[str],
    host: str,
    port: int,
    processes: int,
    settings: Settings,
    access_log: bool,
    announce: Callable[[str], Any],
) -> None:
    """Serves until a signal; see `keras_vit.serving.serve`."""
    if processes < 1:
        raise ConfigError(f"processes={processes}: expected at least 1.")
    with _bound(host, port) as port_of_all:
        shown_host = f"[{host}]" if ":" in host else host
        address = f"http://{shown_host}:{port_of_all.getsockname()[1]}"
        settings = dataclasses.replace(settings, allowed_hosts=(*settings.allowed_hosts, host))
        configure = functools.partial(configuration, settings=settings, access_log=access_log)
        if processes == 1:
            server = _Server(configure(_application(source, settings)))
            server.ready = lambda: announce(f"Serving {source} at {address}")
            with _sigterm_ends_quietly():
                server.run([port_of_all])
            return
        _share_cores(processes)
        announce(f"{processes} processes load {source}; {address} answers when one is ready.")
        # A process of its own builds the application: weights are not sent between processes.
        factory = functools.partial(_application_or_exit, str(source), settings)
        config = configure(factory, factory=True, workers=processes)
        config.timeout_worker_healthcheck = _SECONDS_TO_SIGN_LIFE
        supervisor = Multiprocess(config, [port_of_all])
        supervisor.run()
        if any(process.exitcode == STARTUP_FAILURE for process in supervisor.processes):
            raise KerasViTError("A process could not load the model; its message is above.")


def configuration(
    app: Any, settings: Settings, access_log: bool = False, **options: Any
) -> uvicorn.Config:
    """Returns the configuration of uvicorn for an application and its limits."""
    return uvicorn.Config(
        app,
        http=PatientProtocol,
        ws="none",
        lifespan="on",
        log_level="info" if access_log else "warning",
        access_log=access_log,
        server_header=False,
        limit_concurrency=settings.max_connections,
        timeout_keep_alive=settings.read_timeout,
        timeout_graceful_shutdown=settings.drain,
        **{"workers": 1, **options},
    )


class _Server(uvicorn.Server):
    ready: Callable[[], Any] = staticmethod(lambda: None)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready()


@contextmanager
def _bound(host: str, port: int) -> Iterator[socket.socket]:
    """Yields a socket that holds the port and does not listen yet; uvicorn listens."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as bound:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind((host, port))
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise ConfigError(
                f"host={host!r}, port={port}: the server cannot listen at this address ({reason}). "
                "Choose another port; 0 takes any that is free."
            ) from error
        bound.set_inheritable(True)
        yield bound


def _application(source: str | os.PathLike[str], settings: Settings) -> Any:
    from keras_vit.model import VisionTransformer
    from keras_vit.serving.routes import build_application

    # A client hears of too many pixels by 413; the log need not repeat it for Pillow's own limit.
    warnings.simplefilter("ignore", Image.DecompressionBombWarning)
    return build_application(VisionTransformer.from_preset(source), settings)


def _application_or_exit(source: str, settings: Settings) -> Any:
    """Returns the application; on an error, exits with a status that stops all restarts."""
    try:
        return _application(source, settings)
    except KerasViTError as error:
        print(f"keras-vit: {visible(str(error), lines=True)}", file=sys.stderr)
        sys.exit(STARTUP_FAILURE)


@contextmanager
def _sigterm_ends_quietly() -> Iterator[None]:
    """After it has drained, uvicorn raises the signal again; the exit status shall be 0."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _share_cores(processes: int) -> None:
    """Gives each process its share of the cores; backends take all by themselves."""
    share = str(max(1, (os.cpu_count() or 1) // processes))
    for name in ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS"):
        os.environ.setdefault(name, share)
