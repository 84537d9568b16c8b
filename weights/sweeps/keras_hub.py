"""The vision backbones of keras-hub that keras_vit has, with options of each."""

import numpy as np

from tests.helpers import to_numpy
from tests.plain import normal
from weights.sweeps.classes import named

SIZES = {
    "image_shape": (16, 16, 3),
    "patch_size": 4,
    "num_layers": 2,
    "num_heads": 2,
    "hidden_dim": 16,
}
PLAIN = {**SIZES, "intermediate_dim": 24}
DINOV2 = {**PLAIN, "position_embedding_shape": (16, 16, 3)}


def _case(name, fields, seed, folder):
    import keras_hub

    model = getattr(keras_hub.models, name)(**fields)
    rng = np.random.default_rng(seed)
    for weight in model.weights:
        if "int" in str(weight.dtype):
            weight.assign(np.arange(weight.shape[-1])[None])
        else:
            weight.assign(0.2 * rng.standard_normal(weight.shape) + ("gamma" in weight.name))
    if "DINOV2" in name:
        embedding = model.embeddings
        embedding.interpolated_position_embeddings.assign(embedding.position_embeddings)
    model.save_to_preset(str(folder))
    image = normal(2, 16, 16, 3, seed=seed)
    output = model(image if not isinstance(model.input, dict) else {next(iter(model.input)): image})
    actual = to_numpy(output)
    return image, actual if actual.ndim == 2 else actual[:, 0]


_ROWS = (
    ("ViTBackbone", {**SIZES, "patch_size": (4, 4), "mlp_dim": 24}),
    ("ViTBackbone", {**SIZES, "patch_size": (4, 4), "mlp_dim": 24, "use_mha_bias": False}),
    ("ViTBackbone", {**SIZES, "patch_size": (4, 4), "mlp_dim": 24, "use_mlp_bias": False}),
    ("DeiTBackbone", {**PLAIN, "patch_size": (4, 4)}),
    ("DeiTBackbone", {**PLAIN, "patch_size": (4, 4), "use_mha_bias": False}),
    ("DINOV2Backbone", DINOV2),
    ("DINOV2Backbone", {**DINOV2, "num_register_tokens": 3}),
    ("DINOV2Backbone", {**DINOV2, "use_mask_token": False, "num_register_tokens": 2}),
    ("DINOV2Backbone", {**DINOV2, "use_swiglu_ffn": True}),
    ("DINOV3Backbone", PLAIN),
    ("DINOV3Backbone", {**PLAIN, "num_register_tokens": 3, "use_mask_token": False}),
    ("DINOV3Backbone", {**PLAIN, "use_gated_mlp": True, "hidden_activation": "silu"}),
    ("DINOV3Backbone", {**PLAIN, "use_key_bias": True, "rope_theta": 50.0}),
    ("CLIPVisionEncoder", PLAIN),
    ("CLIPVisionEncoder", {**PLAIN, "intermediate_activation": "gelu"}),
    ("SigLIPVisionEncoder", PLAIN),
)


CASES = named(_ROWS, _case, {*DINOV2, "mlp_dim"})
