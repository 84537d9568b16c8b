"""The policy of the layers that keep float32 while the rest of a model computes in 16 bits."""

import contextlib
from typing import Any

import keras

from keras_vit.errors import ConfigError, shown

_FLOATS = ("float16", "bfloat16", "float32", "float64")
_OF_PARTS = (keras.dtype_policies.DTypePolicyMap, keras.dtype_policies.QuantizedDTypePolicy)


def read_policy(dtype: Any) -> keras.dtype_policies.DTypePolicy:
    """Returns the policy that a model's argument `dtype` stands for.

    Raises:
        ConfigError: it is no single policy of floats.
    """
    with contextlib.suppress(TypeError, ValueError):  # Keras raises either for other words
        policy = keras.dtype_policies.get(dtype)
        if not isinstance(policy, _OF_PARTS) and policy.variable_dtype in _FLOATS:
            return policy
    raise ConfigError(
        f"dtype={shown(dtype)}: expected a float type or a policy of one, such as float32, "
        "mixed_bfloat16 or mixed_float16. model.quantize(mode) quantises a model that was built."
    )


def write_policy(policy: keras.dtype_policies.DTypePolicy) -> Any:
    """Returns what `read_policy` makes the policy of again, as plain JSON types.

    A policy of Keras's own class is given by its name, because Keras's serialisation imports
    TensorFlow on every backend.
    """
    is_plain = type(policy) is keras.dtype_policies.DTypePolicy
    return policy.name if is_plain else keras.dtype_policies.serialize(policy)


def float32_under_mixed(policy) -> keras.dtype_policies.DTypePolicy:
    """Returns the policy of a cast-sensitive sublayer: float32 if `policy` is mixed.

    A mixed policy stores float32 and computes in 16 bits; norms and the head still
    compute in float32. A policy that also stores 16 bits is returned unchanged.
    """
    policy = keras.dtype_policies.get(policy)
    mixed = policy.variable_dtype == "float32" and policy.compute_dtype in ("float16", "bfloat16")
    return keras.dtype_policies.get("float32") if mixed else policy
