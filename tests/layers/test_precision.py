"""`float32_under_mixed`: the dtype policy of norms under mixed and pure policies."""

import keras
import pytest

from keras_vit.layers.precision import float32_under_mixed


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_a_mixed_policy_keeps_float32(policy):
    """The policy may be given by name or as an object."""
    for value in (policy, keras.dtype_policies.get(policy)):
        assert float32_under_mixed(value).compute_dtype == "float32"


@pytest.mark.parametrize("policy", ["float32", "bfloat16", "float16", "float64"])
def test_a_pure_policy_is_unchanged(policy):
    """Under a pure 16-bit policy, norms compute in 16 bits too."""
    assert float32_under_mixed(policy).name == policy
