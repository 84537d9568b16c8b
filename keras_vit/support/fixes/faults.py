"""The releases in which faults of other libraries were seen, and private names that are gone.

A canary, a test that fails when the fault is gone, saw the fault in the oldest and the newest of
these releases. A workaround acts in every release that keras_vit supports, and goes when the
oldest of them lacks the fault.
"""

import re
from importlib.metadata import PackageNotFoundError, version
from typing import NamedTuple, TypeVar

Form = TypeVar("Form")


class Fault(NamedTuple):
    """A fault of another library that keras_vit works around.

    Args:
        report: name of the report in `docs/upstream`.
        library: name of the library on the package index.
        first: oldest release in which the fault was seen.
        last: newest release in which the fault was seen.
        where: file of `keras_vit` with the workaround.
    """

    report: str
    library: str
    first: str
    last: str
    where: str


FAULTS = (
    Fault("jax_state", "keras", "3.14.0", "3.15.1", "support/fixes/trainer.py"),
    Fault("threads", "keras", "3.15.1", "3.15.1", "support/fixes/trainer.py"),
    Fault("torch_gradients", "keras", "3.14.0", "3.15.1", "support/fixes/trainer.py"),
    Fault("openvino", "keras", "3.14.0", "3.15.1", "support/fixes/trainer.py"),
    Fault("openvino_abs", "openvino", "2026.4.1", "2026.4.1", "support/interpolation.py"),
    Fault("deleted_weights", "keras", "3.14.0", "3.15.1", "support/fixes/deleted_weights.py"),
    Fault("moments", "keras", "3.14.0", "3.15.1", "kernels/reference.py"),
    Fault("mirrored_clipping", "keras", "3.14.0", "3.15.1", "training/optimizers.py"),
    Fault("clone_model", "keras", "3.14.0", "3.15.1", "models/vision_transformer.py"),
    Fault("recompute_grad", "tensorflow", "2.21.0", "2.21.0", "support/fixes/recompute_grad.py"),
    Fault("tensorflow_stacks", "tensorflow", "2.21.0", "2.21.0", "exporting/pixels.py"),
    Fault("torch_checkpoint", "torch", "2.13.0", "2.14.1", "support/fixes/torch_checkpoint.py"),
    Fault("torch_stacks", "torch", "2.13.0", "2.14.1", "support/fixes/torch_stacks.py"),
    Fault("hub_names", "huggingface-hub", "2.4.0", "2.4.0", "presets/connection.py"),
    Fault("xla_on_cpus", "jax", "0.10.2", "0.10.2", "support/fixes/xla_on_cpus.py"),
)


def release(text: str) -> tuple[int, ...]:
    """Returns the numbers of a release: `"2.13.0+cpu"` is `(2, 13, 0)`."""
    return tuple(map(int, re.findall(r"\d+", text)[:3]))


def is_known(library: str) -> bool:
    """Whether the faults of the installed release were seen; its private names were there."""
    try:
        installed = release(version(library))
    except PackageNotFoundError:
        return False
    seen = [release(word) for f in FAULTS if f.library == library for word in (f.first, f.last)]
    return bool(seen) and min(seen) <= installed <= max(seen)


def note_on(library: str) -> str:
    """Returns a sentence if a library is newer than the releases in which its faults were seen."""
    try:
        installed = release(version(library))
    except PackageNotFoundError:
        return ""
    newest = max((f.last for f in FAULTS if f.library == library), key=release, default=None)
    if newest is None or installed <= release(newest):
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
