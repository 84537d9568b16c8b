"""The policy of the layers that keep float32 while the rest of a model computes in 16 bits."""

import keras


def float32_under_mixed(policy) -> keras.dtype_policies.DTypePolicy:
    """Returns the policy of a cast-sensitive sublayer: float32 if `policy` is mixed.

    A mixed policy stores float32 and computes in 16 bits; norms and the head still
    compute in float32. A policy that also stores 16 bits is returned unchanged.
    """
    policy = keras.dtype_policies.get(policy)
    mixed = policy.variable_dtype == "float32" and policy.compute_dtype in ("float16", "bfloat16")
    return keras.dtype_policies.get("float32") if mixed else policy
