"""Multiplies stacks of float32 matrices by oneDNN, which torch does only after a global setting.

Symptom: on AMD processors `torch.bmm` and the fused attention run at half the speed of oneDNN or
less, because MKL computes their float32 products on a slow path.

Cause: torch has an operation that multiplies by oneDNN for one matrix, and none for a stack of
matrices. Stacks reach oneDNN by a setting of the whole process alone, which permits bfloat16.
oneDNN follows that permission on processors with AMX, and computes in float32 on all others.

Workaround: on a processor without AMX, the setting has that value during the products, one thread
at a time. If the program has chosen a precision itself, nothing is changed, and torch's attention
serves unless the program permits bfloat16.

Leans on: nothing private.
"""

import contextlib
import os
import threading
from collections.abc import Iterator

import torch

from keras_vit.support.processor import processor

_SETTING = getattr(torch.backends.mkldnn, "matmul", None)
"""Has `fp32_precision`; None in a torch before 2.9."""
_turn = threading.Lock()
if hasattr(os, "register_at_fork"):  # a forked process begins with the setting of the program
    os.register_at_fork(
        before=_turn.acquire, after_in_parent=_turn.release, after_in_child=_turn.release
    )


def are_float32() -> bool:
    """Whether oneDNN can compute stacks on this processor with the precision of float32."""
    return (
        hasattr(_SETTING, "fp32_precision")
        and torch.backends.mkldnn.is_available()
        and not any(flag.startswith("amx") for flag in processor().flags)
        and "avx512f" in processor().flags
    )


@contextlib.contextmanager
def by_onednn() -> Iterator[bool]:
    """Context in which oneDNN computes `torch.bmm`; yields False if the program forbids it.

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
