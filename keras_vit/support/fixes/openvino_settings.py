"""Chooses the settings of OpenVINO's compiled models from dtype policy and environment.

OpenVINO computes float32 models in bfloat16 on processors with bfloat16 instructions, unless
`INFERENCE_PRECISION_HINT` names the precision. keras_vit computes a float32 model in float32.
"""

import os
from typing import Any

from keras_vit.errors import ConfigError

_HINTS = {"float32": "f32", "bfloat16": "bf16", "float16": "f16"}


def choose(policy: Any) -> dict[str, Any]:
    """Returns OpenVINO's properties for a model with this dtype policy.

    Environment variables, read before each batch:
        KERAS_VIT_OPENVINO_PRECISION: `float32`, `bfloat16` or `float16`; the default is the compute
            dtype of the policy.
        KERAS_VIT_OPENVINO_THREADS: number of threads; the default is OpenVINO's, all cores.
        KERAS_VIT_OPENVINO_CACHE: folder in which OpenVINO caches compiled models for later
            processes; a file is about as large as the weights. By default nothing is cached.

    Raises:
        ConfigError: a variable has an unknown value.
    """
    precision = os.environ.get("KERAS_VIT_OPENVINO_PRECISION") or None
    if precision not in (None, *_HINTS):
        raise ConfigError(
            f"KERAS_VIT_OPENVINO_PRECISION={precision!r}: expected {', '.join(_HINTS)}."
        )
    settings: dict[str, Any] = {
        "INFERENCE_PRECISION_HINT": _HINTS.get(precision or policy.compute_dtype, "f32"),
        "PERFORMANCE_HINT": "LATENCY",
    }
    if threads := os.environ.get("KERAS_VIT_OPENVINO_THREADS"):
        if not threads.isdecimal() or not int(threads[:9]):
            raise ConfigError(
                f"KERAS_VIT_OPENVINO_THREADS={threads!r}: expected a positive integer."
            )
        settings["INFERENCE_NUM_THREADS"] = int(threads[:9])
    if folder := os.environ.get("KERAS_VIT_OPENVINO_CACHE"):
        settings["CACHE_DIR"] = folder
    return settings
