"""Deletes weights without a garbage collection of the whole process.

Symptom: `quantize` of a ViT takes minutes in a process with millions of Python objects.
`keras.Layer.__delattr__` calls `gc.collect()` for each variable that is deleted, and quantisation
deletes the kernel of every Dense layer.

Workaround: existing objects are frozen meanwhile (`gc.freeze`), so that each collection looks at
the few new ones. A weight is freed with its last reference and does not need the collector. If the
program has frozen objects itself, they stay frozen, and quantization stays slow.

Private names: none.
"""

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def quick_collection() -> Iterator[None]:
    """Makes `gc.collect()` quick inside the context: it skips the objects that exist now."""
    if gc.get_freeze_count():
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
