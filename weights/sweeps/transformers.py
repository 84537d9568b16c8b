"""The classes of transformers that hold an encoder which keras_vit has, with options of each."""

import numpy as np
import torch

from tests import torchvision_shim  # noqa: F401
from tests.plain import normal
from weights.sweeps.classes import named

SIZES = {"hidden_size": 24, "num_attention_heads": 3, "num_hidden_layers": 2, "patch_size": 4}
PLAIN = {**SIZES, "intermediate_size": 40, "image_size": 16}
DINOV2 = {**SIZES, "image_size": 16}
ROPE = {**PLAIN, "num_attention_heads": 2, "num_register_tokens": 3}


def _read(output, part):
    """An output of a class, or the first of its tokens, or their mean."""
    if part in ("first", "mean"):
        tokens = output.last_hidden_state
        return tokens[:, 0] if part == "first" else tokens.mean(1)
    return getattr(output, {"pooled": "pooler_output"}.get(part, part))


def _case(name, fields, part, seed, folder):
    import transformers

    torch.manual_seed(seed)
    kind = getattr(transformers, name)
    config = kind.config_class(**fields)
    if name == "CLIPForImageClassification":
        config = transformers.CLIPConfig(vision_config=fields, num_labels=5)
    if name == "SiglipForImageClassification":
        config = transformers.SiglipConfig(vision_config=fields, num_labels=5)
    model = kind(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(std=0.2)
    model.save_pretrained(folder)
    image = normal(2, 16, 16, 3, seed=seed)
    more = {"noise": torch.arange(16.0).repeat(2, 1)} if "MAE" in name else {}
    with torch.no_grad():
        output = model(torch.from_numpy(image.transpose(0, 3, 1, 2).copy()), **more)
    return image, np.asarray(_read(output, part))


_ROWS = (
    ("ViTModel", PLAIN, "pooled"),
    ("ViTForImageClassification", PLAIN, "logits"),
    ("ViTForImageClassification", {**PLAIN, "qkv_bias": False}, "logits"),
    ("ViTForImageClassification", {**PLAIN, "hidden_act": "silu"}, "logits"),
    ("DeiTModel", PLAIN, "pooled"),
    ("DeiTForImageClassification", PLAIN, "logits"),
    ("DeiTForImageClassificationWithTeacher", PLAIN, "logits"),
    ("ViTMAEModel", {**PLAIN, "mask_ratio": 0.0}, "first"),
    ("ViTMSNModel", PLAIN, "first"),
    ("ViTMSNForImageClassification", PLAIN, "logits"),
    ("IJepaModel", PLAIN, "mean"),
    ("IJepaForImageClassification", PLAIN, "logits"),
    ("Dinov2Model", DINOV2, "pooled"),
    ("Dinov2Model", {**DINOV2, "use_swiglu_ffn": True}, "pooled"),
    ("Dinov2ForImageClassification", DINOV2, "logits"),
    ("Dinov2WithRegistersModel", {**DINOV2, "num_register_tokens": 2}, "pooled"),
    ("Dinov2WithRegistersForImageClassification", DINOV2, "logits"),
    ("DINOv3ViTModel", ROPE, "pooled"),
    ("DINOv3ViTModel", {**ROPE, "use_gated_mlp": True, "hidden_act": "silu"}, "pooled"),
    ("DINOv3ViTModel", {**ROPE, "key_bias": True, "mlp_bias": False, "rope_theta": 50.0}, "pooled"),
    ("CLIPVisionModel", PLAIN, "pooled"),
    ("CLIPVisionModel", {**PLAIN, "hidden_act": "gelu"}, "pooled"),
    ("CLIPVisionModelWithProjection", {**PLAIN, "projection_dim": 7}, "image_embeds"),
    ("CLIPForImageClassification", PLAIN, "logits"),
    ("SiglipVisionModel", PLAIN, "pooled"),
    ("SiglipForImageClassification", PLAIN, "logits"),
    ("FlavaImageModel", PLAIN, "pooled"),
)


CASES = named(_ROWS, _case, {*PLAIN, "num_register_tokens"})
