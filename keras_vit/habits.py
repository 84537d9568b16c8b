"""Names that users of other libraries type from habit, with the line that does it here."""

_FRESH = "keras_vit.vit_b16() builds fresh weights; keras_vit.list_variants() has all builders"
_LOAD = 'keras_vit.VisionTransformer.from_preset("vit_digits") loads a model'
_PREPARE = "model.preprocessor(images) prepares images as the weights expect them"

HABITS = {
    "ImageClassifier": _LOAD,
    "ViTB16": _FRESH,
    "ViTBackbone": 'VisionTransformer.from_preset("vit_digits", num_classes=0) gives features',
    "ViTImageClassifier": _LOAD,
    "applications": _FRESH,
    "create_model": f"{_FRESH}; {_LOAD}",
    "decode_predictions": "model.classify(images, top=5) gives labels and probabilities",
    "from_pretrained": _LOAD,
    "from_preset": _LOAD,
    "list_models": "keras_vit.list_presets() and `keras-vit list` show what can be loaded",
    "load_model": f"{_LOAD}, also from a file; keras.saving.load_model opens a .keras file",
    "models": _FRESH,
    "preprocess_input": _PREPARE,
    "preprocessing": _PREPARE,
    "presets": "keras_vit.list_presets() lists them; upload_preset puts one on the Hub",
    "tasks": "examples/paper/masked_patches.py has pre-training without labels",
}


def answer_habit(name: str) -> str:
    """Returns a sentence on a name that keras_vit does not have; empty if none is known."""
    return f" {HABITS[name]}." if name in HABITS else ""
