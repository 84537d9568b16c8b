"""The releases in which faults of other libraries were seen, and private names that are gone.

A canary, a test that fails when the fault is gone, saw the fault in the oldest and the newest of
these releases. A workaround acts in every release that keras_vit supports, and goes when the
oldest of them lacks the fault.
"""

import re
from importlib.metadata import PackageNotFoundError, version
from typing import NamedTuple, TypeVar

Form = TypeVar("Form")


class Releases(NamedTuple):
    """The releases of a library in which its faults were seen: the oldest, and the newest.

    Args:
        library: name of the library on the package index.
        first, last: the releases.
    """

    library: str
    first: str
    last: str


class Fault(NamedTuple):
    """A fault of another library that keras_vit works around.

    The report of a fault is its canary: a test that is the program of the report, and whose
    docstring says what is expected, what is found, and how the library could mend it.

    Args:
        seen: releases with the fault.
        where: file of `keras_vit` with the workaround.
        canary: name of the canary in `tests`, behind `test_canary_`.
    """

    seen: Releases
    where: str
    canary: str


_KERAS = Releases("keras", "3.14.0", "3.15.1")
_TENSORFLOW = Releases("tensorflow", "2.21.0", "2.21.0")
_TORCH = Releases("torch", "2.13.0", "2.14.1")
_JAX = Releases("jax", "0.10.2", "0.10.2")
_OPENVINO = Releases("openvino", "2026.4.1", "2026.4.1")
_HUB = Releases("huggingface-hub", "2.4.0", "2.4.0")
LIBRARIES = (_KERAS, _TENSORFLOW, _TORCH, _JAX, _OPENVINO, _HUB)
FAULTS = (
    Fault(_KERAS, "support/fixes/trainer.py", "keras_loses_the_weights_of_a_failed_predict"),
    Fault(
        _KERAS,
        "models/inference/__init__.py",
        "keras_refuses_a_batch_that_the_devices_do_not_divide",
    ),
    Fault(_KERAS, "support/fixes/trainer.py", "keras_lends_the_weights_to_one_thread"),
    Fault(_KERAS, "support/fixes/trainer.py", "keras_keeps_gradients_over_the_next_forward_pass"),
    Fault(_KERAS, "support/fixes/trainer.py", "keras_predicts_with_old_weights"),
    Fault(
        _KERAS, "support/fixes/deleted_weights.py", "keras_collects_garbage_for_each_deleted_weight"
    ),
    Fault(_KERAS, "kernels/reference.py", "moments_of_keras_hold_the_mean_for_a_constant"),
    Fault(_KERAS, "training/optimizers.py", "keras_clips_before_it_sums"),
    Fault(_KERAS, "training/optimizers.py", "keras_shares_the_averages_of_the_weights"),
    Fault(_KERAS, "models/vision_transformer.py", "keras_clones_a_subclass_as_a_plain_functional"),
    Fault(
        _TENSORFLOW,
        "support/fixes/recompute_grad.py",
        "recompute_grad_refuses_a_gradient_of_its_gradient",
    ),
    Fault(_TENSORFLOW, "support/fixes/trainer.py", "tf_data_tunes_on_after_the_last_batch"),
    Fault(_TENSORFLOW, "exporting/pixels.py", "tensorflow_multiplies_a_stack_wrongly"),
    Fault(_TORCH, "support/interpolation.py", "torch_resizes_to_one_column_wrongly"),
    Fault(_TORCH, "support/fixes/torch_checkpoint.py", "keras_remat_calls_the_checkpoint_of_torch"),
    Fault(_TORCH, "support/fixes/torch_stacks.py", "torch_has_no_operation_for_stacks"),
    Fault(_HUB, "presets/connection.py", "huggingface_hub_alone_writes_where_the_etag_says"),
    Fault(
        _JAX,
        "support/fixes/xla_on_cpus.py",
        "xla_joins_the_second_run_of_checkpoint_with_the_first",
    ),
    Fault(
        _JAX, "support/fixes/xla_on_cpus.py", "xla_reserves_an_array_for_each_constant_of_a_gelu"
    ),
    Fault(_JAX, "kernels/jax.py", "xla_cannot_transpose_a_float32_result_of_bfloat16"),
    Fault(_OPENVINO, "support/interpolation.py", "openvino_drops_an_abs"),
)


def release(text: str) -> tuple[int, ...]:
    """Returns the numbers of a release: `"2.13.0+cpu"` is `(2, 13, 0)`."""
    return tuple(map(int, re.findall(r"\d+", text)[:3]))


def _installed(library: str) -> tuple[int, ...]:
    """Returns the numbers of the installed release; `()`, which is below all, if there is none."""
    try:
        return release(version(library))
    except PackageNotFoundError:
        return ()


def is_known(library: str) -> bool:
    """Whether the faults of the installed release were seen; its private names were there."""
    seen = [row for row in LIBRARIES if row.library == library]
    return any(release(row.first) <= _installed(library) <= release(row.last) for row in seen)


def note_on(library: str) -> str:
    """Returns a sentence if a library is newer than the releases in which its faults were seen."""
    newest = next((row.last for row in LIBRARIES if row.library == library), None)
    if newest is None or _installed(library) <= release(newest):
        return ""
    return f"newer than {newest}, the last release whose faults keras_vit has seen"


PLAIN_FORMS: dict[str, str] = {}
"""Each private name that an installed library lacks, and a sentence on its replacement."""


def plain_form(name: str, form: Form, words: str) -> Form:
    """Returns the replacement of a missing private name, and lets `keras-vit doctor` report it.

    Args:
        name: full name that the other library lacks.
        form: replacement, such as a function that computes without the private name.
        words: sentence for the user on the replacement.
    """
    PLAIN_FORMS[name] = words
    return form
