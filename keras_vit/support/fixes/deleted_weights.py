"""Deletes weights without a search of the whole process for garbage.

Symptom: `quantize` of a ViT takes minutes in a process with millions of Python objects.
`keras.Layer.__delattr__` calls `gc.collect()` for each variable that is deleted, and quantisation
deletes the kernel of every Dense layer.

Workaround: objects that exist already are frozen meanwhile, so that each search passes over the
few new ones. A weight is freed by its last reference, and needs no search. A program that has
frozen objects itself keeps them frozen, and waits.

Leans on: nothing private.
"""

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def little_to_search() -> Iterator[None]:
    """Context in which `gc.collect()` is quick, because it skips the objects that exist now."""
    if gc.get_freeze_count():
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
