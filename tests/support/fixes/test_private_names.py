"""The doctor lists private names that are gone."""

import json

import numpy as np
import pytest

from tests.processes import python

NAMES = [
    "torch._C._are_functorch_transforms_active",
    "torch.nn.modules.module._has_any_global_hook",
]
WITHOUT_NAMES = f"""
import torch
del {", ".join(NAMES)}
import keras_vit, numpy as np
model = keras_vit.VisionTransformer.from_preset("vit_digits")
print(model.classify(np.zeros((8, 8, 1), "uint8"), top=1)[0][0][1])
from keras_vit.cli import main
main(["doctor", "--json"])
"""


# All private names are torch's.
def test_the_doctor_lists_private_names_that_are_gone():
    """The model answers as it does with them."""
    from keras_vit import VisionTransformer

    process = python(WITHOUT_NAMES, KERAS_BACKEND="torch")
    assert process.returncode == 0, process.stderr
    answer, _, rows = process.stdout.partition("\n")
    model = VisionTransformer.from_preset("vit_digits")
    expected = model.classify(np.zeros((8, 8, 1), "uint8"), top=1)[0][0][1]
    assert float(answer) == pytest.approx(expected, abs=1e-6)
    gone = [row["name"] for row in json.loads(rows) if row["version"] == "gone"]
    assert sorted(gone) == NAMES
