"""Dtype policies, and the layers that stay float32 in a mixed-precision model."""

import contextlib
from typing import Any

import keras

from keras_vit.errors import ConfigError, shown

_FLOATS = ("float16", "bfloat16", "float32", "float64")
_OF_PARTS = (keras.dtype_policies.DTypePolicyMap, keras.dtype_policies.QuantizedDTypePolicy)


def read_policy(dtype: Any) -> keras.dtype_policies.DTypePolicy:
    """Returns the dtype policy for the argument `dtype` of a model.

    Raises:
        ConfigError: it is not a single policy with a float type.
    """
    with contextlib.suppress(TypeError, ValueError):  # Keras raises either for unknown names
        policy = keras.dtype_policies.get(dtype)
        if not isinstance(policy, _OF_PARTS) and policy.variable_dtype in _FLOATS:
            return policy
    raise ConfigError(
        f"dtype={shown(dtype)}: expected a float type or a policy of one, such as float32, "
        "mixed_bfloat16 or mixed_float16. model.quantize(mode) quantises a model that was built."
    )


def write_policy(policy: keras.dtype_policies.DTypePolicy) -> Any:
    """Returns a policy as plain JSON types; `read_policy` is its inverse.

    A plain policy of Keras is written as its name, because Keras's serialisation imports
    TensorFlow on every backend.
    """
    is_plain = type(policy) is keras.dtype_policies.DTypePolicy
    return policy.name if is_plain else keras.dtype_policies.serialize(policy)


def float32_under_mixed(policy) -> keras.dtype_policies.DTypePolicy:
    """Returns the policy of a precision-sensitive sublayer: float32 if `policy` is mixed.

    A mixed policy stores float32 and computes in 16 bits; norms and the head still
    compute in float32. A policy that also stores 16 bits is returned unchanged.
    """
    policy = keras.dtype_policies.get(policy)
    mixed = policy.variable_dtype == "float32" and policy.compute_dtype in ("float16", "bfloat16")
    return keras.dtype_policies.get("float32") if mixed else policy
