"""Vision Transformers for Keras 3, on TensorFlow, JAX and torch.

Names are imported on first use, so that `import keras_vit` is quick and reading a
checkpoint's headers (`keras_vit.checkpoints.inspect`) starts no backend. Keras can load saved
models of keras_vit after `import keras, keras_vit`, in this order, or after the first use of a
name such as `keras_vit.VisionTransformer`. If only one backend is installed and the user has not
chosen another, Keras takes the installed backend.
"""

import importlib
from typing import TYPE_CHECKING, Any

from keras_vit.environment.backend import choose, refusal
from keras_vit.environment.registration import register_with_keras

if TYPE_CHECKING:
    from keras_vit import (
        checkpoints,
        data,
        distribution,
        evaluation,
        explanation,
        finetune,
        labels,
        layers,
        ray,
        serving,
    )
    from keras_vit.config import Numerics, ResNetStem, Rope, ViTConfig
    from keras_vit.costs import flops
    from keras_vit.errors import (
        CheckpointError,
        ConfigError,
        ExportError,
        KerasViTError,
        PresetError,
    )
    from keras_vit.evaluation import (
        Evaluation,
        LinearProbe,
        embed,
        evaluate,
        features,
        few_shot,
        linear_probe,
    )
    from keras_vit.explanation import attention_maps, attention_rollout, explain, read_tokens
    from keras_vit.exporting import export
    from keras_vit.images import Preprocessor
    from keras_vit.model import VisionTransformer
    from keras_vit.sharing.upload import upload_preset
    from keras_vit.sources.catalog import list_presets
    from keras_vit.variants import (
        list_variants,
        r26_vit_b32,
        r26_vit_s32,
        r50_vit_b16,
        r50_vit_l32,
        r_vit_ti16,
        vit_b8,
        vit_b16,
        vit_b32,
        vit_h14,
        vit_l16,
        vit_l32,
        vit_s16,
        vit_s32,
        vit_ti16,
    )

__version__ = "0.1.0"

__all__ = [
    "CheckpointError",
    "ConfigError",
    "Evaluation",
    "ExportError",
    "KerasViTError",
    "LinearProbe",
    "Numerics",
    "Preprocessor",
    "PresetError",
    "ResNetStem",
    "Rope",
    "ViTConfig",
    "VisionTransformer",
    "attention_maps",
    "attention_rollout",
    "checkpoints",
    "data",
    "distribution",
    "embed",
    "evaluate",
    "evaluation",
    "explain",
    "explanation",
    "export",
    "features",
    "few_shot",
    "finetune",
    "flops",
    "labels",
    "layers",
    "linear_probe",
    "list_presets",
    "list_variants",
    "r26_vit_b32",
    "r26_vit_s32",
    "r50_vit_b16",
    "r50_vit_l32",
    "r_vit_ti16",
    "ray",
    "read_tokens",
    "serving",
    "upload_preset",
    "vit_b8",
    "vit_b16",
    "vit_b32",
    "vit_h14",
    "vit_l16",
    "vit_l32",
    "vit_s16",
    "vit_s32",
    "vit_ti16",
]

_ROOMS = (
    "checkpoints",
    "data",
    "distribution",
    "evaluation",
    "explanation",
    "finetune",
    "labels",
    "layers",
    "ray",
    "serving",
)
_HOMES = {
    "costs": ("flops",),
    "config": ("Numerics", "ResNetStem", "Rope", "ViTConfig"),
    "errors": ("CheckpointError", "ConfigError", "ExportError", "KerasViTError", "PresetError"),
    "evaluation": (
        "Evaluation",
        "LinearProbe",
        "embed",
        "evaluate",
        "features",
        "few_shot",
        "linear_probe",
    ),
    "explanation": ("attention_maps", "attention_rollout", "explain", "read_tokens"),
    "exporting": ("export",),
    "model": ("VisionTransformer",),
    "images": ("Preprocessor",),
    "sharing.upload": ("upload_preset",),
    "sources.catalog": ("list_presets",),
    "variants": (
        "list_variants",
        "r26_vit_b32",
        "r26_vit_s32",
        "r50_vit_b16",
        "r50_vit_l32",
        "r_vit_ti16",
        "vit_b8",
        "vit_b16",
        "vit_b32",
        "vit_h14",
        "vit_l16",
        "vit_l32",
        "vit_s16",
        "vit_s32",
        "vit_ti16",
    ),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return _imported(name)
    if name not in _HOME_OF:
        raise AttributeError(f"module 'keras_vit' has no attribute {name!r}")
    value = getattr(_imported(_HOME_OF[name]), name)
    globals()[name] = value
    register_with_keras()
    return value


def _imported(module: str) -> Any:
    try:
        return importlib.import_module(f"keras_vit.{module}")
    except ImportError as error:
        if reason := refusal():
            raise reason from error
        raise


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


choose()
register_with_keras()
