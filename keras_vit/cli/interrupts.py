"""Repeats a Ctrl-C that Python would ignore."""

import _thread
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_PAUSE = 0.05  # seconds, in which the callback that Ctrl-C met ends


@contextmanager
def interrupts_repeated() -> Iterator[None]:
    """Context in which a `KeyboardInterrupt` that Python printed and ignored is raised again.

    Python cannot raise it out of a callback of the garbage collector or out of `__del__`. JAX has
    such a callback, and the collector runs often while a model is built.
    """
    before = sys.unraisablehook
    timers: list[threading.Timer] = []

    def hook(unraisable: Any) -> None:
        if not issubclass(unraisable.exc_type, KeyboardInterrupt):
            before(unraisable)
            return
        timers.append(threading.Timer(_PAUSE, _interrupt))
        timers[-1].daemon = True
        timers[-1].start()

    sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = before
        for timer in timers:
            timer.cancel()


def _interrupt() -> None:
    """Interrupts the main thread, also while it waits."""
    if hasattr(signal, "pthread_kill"):
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
    else:
        _thread.interrupt_main()
