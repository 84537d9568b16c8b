"""Writes `tests/data/formats`: models of transformers' TensorFlow classes, with outputs.

    python -m weights.test_data.formats

transformers 5 has removed these classes. It needs a Python 3.11 environment of its own with
transformers 4.49.0, tensorflow-cpu 2.18 and tf-keras 2.18. All weights are random. A case is a
folder as the library wrote it, and an npz with images and outputs by the names of
`tests.golden`.
"""

import os
from pathlib import Path
from typing import Any

import numpy as np

os.environ["TF_USE_LEGACY_KERAS"] = "1"

import transformers  # isort: skip

FOLDER = Path(__file__).parents[2] / "tests" / "data" / "formats"
_SIZES = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "image_size": 16,
    "patch_size": 8,
}
_HEAD = {**_SIZES, "num_labels": 3}
_BIASED = {**_HEAD, "use_relative_position_bias": True, "layer_scale_init_value": 0.5}
_TEXT = {
    **{"vocab_size": 6, "max_position_embeddings": 4, "hidden_size": 4, "intermediate_size": 4},
    **{"num_hidden_layers": 1, "num_attention_heads": 1, "eos_token_id": 5},
}
_VISION = {**_SIZES, "num_hidden_layers": 1}
_TOWERS = {"vision_config": _VISION, "text_config": _TEXT, "projection_dim": 6}
CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "tf_vit": ("TFViTForImageClassification", "ViTConfig", _HEAD),
    "tf_deit": ("TFDeiTForImageClassificationWithTeacher", "DeiTConfig", _HEAD),
    "tf_clip": ("TFCLIPModel", "CLIPConfig", _TOWERS),
    "tf_data2vec": ("TFData2VecVisionForImageClassification", "Data2VecVisionConfig", _BIASED),
}
"""Name of a case -> class, class of its configuration, and the arguments of that."""


def main() -> None:
    """Writes every case."""
    for seed, (name, (kind, config, fields)) in enumerate(CASES.items()):
        rng = np.random.default_rng(seed)
        own = getattr(transformers, config)(**fields)
        model = _make(getattr(transformers, kind), own, rng)
        model.save_pretrained(FOLDER / name)
        image = rng.uniform(-1, 1, (2, 16, 16, 3)).astype("float32")
        np.savez(FOLDER / f"{name}.npz", image=image, **_outputs(model, image))


def _make(kind, config, rng):
    model = kind(config)
    model.build_in_name_scope()
    model(model.dummy_inputs)
    for weight in model.weights:
        weight.assign(rng.normal(0, 0.3, weight.shape).astype("float32"))
    return model


def _outputs(model, image):
    import tensorflow as tf

    pixels = tf.constant(image.transpose(0, 3, 1, 2))
    if type(model).__name__.endswith("CLIPModel"):
        return {"image_embeds": np.asarray(model.get_image_features(pixel_values=pixels))}
    return {"logits": np.asarray(model(pixel_values=pixels).logits)}


if __name__ == "__main__":
    main()
