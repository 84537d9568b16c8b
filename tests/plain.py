"""Helpers that need no Keras: expected messages, JSON, arrays and the fields of small models."""

import json
import re

import numpy as np
import pytest


def through_json(config: dict) -> dict:
    """The configuration after it is written as JSON and read back."""
    return json.loads(json.dumps(config))


def edit_json(path, *keys: str, **changes: object) -> None:
    """Changes values of the object below `keys` in a JSON file; the value `...` removes a key."""
    content = place = json.loads(path.read_text())
    for key in keys:
        place = place[key]
    place.update(changes)
    for key in [key for key, value in changes.items() if value is ...]:
        del place[key]
    path.write_text(json.dumps(content))


def raises(error: type[Exception], *words: str):
    """Expects an exception whose message contains all the words, in order."""
    return pytest.raises(error, match="(?s)" + ".*".join(re.escape(word) for word in words))


POLICIES = ("float32", "mixed_bfloat16", "mixed_float16")
MIXED_POLICIES = POLICIES[1:]

ROUNDING = {"float32": 1e-5, "mixed_bfloat16": 2e-2, "mixed_float16": 3e-3}
"""Largest error of a policy, relative to the largest value, that rounding to it explains."""

HYBRID = {"stem": {"kind": "resnet", "units": (1,), "width_factor": 0.5}, "patch_size": 2}
"""Fields of a small hybrid: a root and one bottleneck unit, 8 pixels per patch."""


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    """Standard normal float32 numbers, the same in every run."""
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def stored(path) -> dict[str, np.ndarray]:
    """The arrays of a checkpoint file."""
    from keras_vit.checkpoints.containers import open_arrays

    with open_arrays(path) as reader:
        return {name: reader.read(name) for name in reader.shapes}


def assert_same_arrays(left, right) -> None:
    """Fails unless two dicts have the same names, shapes, types and bits."""
    assert left.keys() == right.keys()
    for name, array in left.items():
        assert (array.shape, array.dtype) == (right[name].shape, right[name].dtype), name
        assert array.tobytes() == right[name].tobytes(), name
