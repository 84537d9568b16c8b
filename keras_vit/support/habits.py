"""Names that users of other libraries type from habit, with the equivalent in keras_vit."""

import os

_FRESH = "keras_vit.vit_b16() builds fresh weights; keras_vit.list_variants() has all builders"
_FAMILY = 'VisionTransformer.from_preset("vit_b14.dinov2", load_weights=False) builds DINOv2 fresh'
_LOAD = 'keras_vit.VisionTransformer.from_preset("vit_digits") loads a model'
_PREPARE = "model.preprocessor(images) prepares images as the weights expect them"
_FEATURES = (
    "keras_vit.evaluation.features(model, images) gives a vector per image, "
    "model.tokens(images) the tokens"
)
_BLOCKS = (
    'model.tokens(images, stages="block_3") gives the tokens of a block, as transformers and timm; '
    '"block_3/norm" applies the last norm, as DINOv2'
)
_HEAD = (
    'model.get_layer("head") is the head; VisionTransformer.from_preset(source, num_classes=5) '
    "makes a new one, and model.with_head(layer) takes yours"
)
_FACTS = "model.config, model.preprocessor.protocol and model.provenance have these facts"

HABITS = {
    "AutoModel": _LOAD,
    "ImageClassifier": _LOAD,
    "ViTB16": _FRESH,
    "ViTBackbone": 'VisionTransformer.from_preset("vit_digits", num_classes=0) gives features',
    "ViTForImageClassification": _LOAD,
    "ViTImageClassifier": _LOAD,
    "ViTModel": 'VisionTransformer.from_preset("vit_digits", num_classes=0) gives features',
    "applications": _FRESH,
    "create_model": f"{_FRESH}; {_LOAD}",
    "decode_predictions": "model.classify(images, top=5) gives labels and probabilities",
    "from_pretrained": _LOAD,
    "from_preset": _LOAD,
    "list_models": "keras_vit.list_presets() and `keras-vit list` show what can be loaded",
    "load_model": f"{_LOAD}, also from a file; keras.saving.load_model opens a .keras file",
    "preprocess_input": _PREPARE,
    "preprocessing": _PREPARE,
    "tasks": "examples/paper/masked_patches.py has pre-training without labels",
    "vit_b14": _FAMILY,
    "vit_g14": _FAMILY,
    "vit_l14": _FAMILY,
}
"""Names that users look for in `keras_vit`, and a sentence about each."""

MODEL_HABITS = {
    "backbone": _FEATURES,
    "default_cfg": _FACTS,
    "forward_features": _FEATURES,
    "forward_head": _HEAD,
    "forward_intermediates": _BLOCKS,
    "get_classifier": _HEAD,
    "get_intermediate_layers": _BLOCKS,
    "head": _HEAD,
    "hidden_states": _BLOCKS,
    "last_hidden_state": _FEATURES,
    "num_features": "model.config.hidden_size is the width of the tokens",
    "predict_proba": "model.probabilities(images) gives the probabilities of all classes",
    "preprocess": _PREPARE,
    "pretrained_cfg": _FACTS,
    "push_to_hub": 'keras_vit.upload_preset("hf://owner/repo", folder) uploads a saved preset',
    "reset_classifier": _HEAD,
    "save_pretrained": "model.save_to_preset(folder) saves the model as a preset",
}
"""Attributes that users look for in a model, and a sentence about each."""


def answer_habit(name: str) -> str:
    """Returns the sentence for a name of another library; empty for other names."""
    return f" {HABITS[name]}." if name in HABITS else ""


def answer_no_config(value: object, variants: list[str]) -> str:
    """Returns the message for `VisionTransformer(value)` if the value is not a configuration.

    Args:
        value: the first argument; None if there is none.
        variants: names of the builders.
    """
    builder = value if value in variants else "vit_b16"
    is_source = isinstance(value, (str, os.PathLike)) and value not in variants
    return (
        "VisionTransformer takes config, a ViTConfig, or its fields as keywords; found "
        f"{'neither' if value is None else repr(value)}. keras_vit.{builder}() builds fresh "
        "weights, keras_vit.list_variants() has all builders; keras_vit.VisionTransformer."
        f"from_preset({str(value) if is_source else 'vit_digits'!r}) loads a model."
    )
