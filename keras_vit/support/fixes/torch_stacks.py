"""Multiplies batches of float32 matrices with oneDNN, which needs a global setting of PyTorch.

Symptom: on AMD processors `torch.bmm` and the fused attention run at half the speed of oneDNN or
less, because MKL computes their float32 products on a slow path.

Cause: torch has an operation that multiplies one matrix with oneDNN, but none for a batch of
matrices. Batches use oneDNN only if a global setting permits bfloat16. With that setting oneDNN
computes in bfloat16 on processors with AMX, and in float32 on all others.

Workaround: on a processor without AMX, the setting is changed during the products, one thread at a
time. If the program has chosen a precision itself, nothing is changed, and torch's own attention is
used unless the program permits bfloat16.

Private names: none.
"""

import contextlib
import os
import threading
from collections.abc import Iterator

import torch

from keras_vit.support.processor import processor

_SETTING = getattr(torch.backends.mkldnn, "matmul", None)
"""The object with `fp32_precision`; None before torch 2.9."""
_turn = threading.Lock()
if hasattr(os, "register_at_fork"):  # a forked process begins with the setting of the program
    os.register_at_fork(
        before=_turn.acquire, after_in_parent=_turn.release, after_in_child=_turn.release
    )


def are_float32() -> bool:
    """Whether oneDNN can multiply batches on this processor with the precision of float32."""
    return (
        hasattr(_SETTING, "fp32_precision")
        and torch.backends.mkldnn.is_available()
        and not any(flag.startswith("amx") for flag in processor().flags)
        and "avx512f" in processor().flags
    )


@contextlib.contextmanager
def by_onednn() -> Iterator[bool]:
    """Lets oneDNN compute `torch.bmm` inside the context; yields False if the program forbids it.

    Other threads wait before they enter such a context or fork the process.
    """
    assert _SETTING is not None  # noqa: S101  the caller asks `are_float32`
    with _turn:
        chosen = _SETTING.fp32_precision
        if chosen != "none":
            yield chosen == "bf16"
            return
        try:
            _SETTING.fp32_precision = "bf16"
            yield True
        finally:
            _SETTING.fp32_precision = "none"
