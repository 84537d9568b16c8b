"""The classes of transformers that hold an encoder which keras_vit has, with options of each."""

import numpy as np
import torch

from tests import torchvision_shim  # noqa: F401
from tests.helpers import normal
from tests.sweeps.classes import named

SIZES = {"hidden_size": 24, "num_attention_heads": 3, "num_hidden_layers": 2, "patch_size": 4}
PLAIN = {**SIZES, "intermediate_size": 40, "image_size": 16}
DINOV2 = {**SIZES, "image_size": 16}
ROPE = {**PLAIN, "num_attention_heads": 2, "num_register_tokens": 3}


def _logits(output):
    return output.logits


def _first(output):
    return output.last_hidden_state[:, 0]


def _mean(output):
    return output.last_hidden_state.mean(1)


def _pooled(output):
    return output.pooler_output


def _embeds(output):
    return output.image_embeds


def _case(name, fields, read, seed, folder):
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
    return image, np.asarray(read(output))


_ROWS = (
    ("ViTModel", PLAIN, _pooled),
    ("ViTForImageClassification", PLAIN, _logits),
    ("ViTForImageClassification", {**PLAIN, "qkv_bias": False}, _logits),
    ("DeiTModel", PLAIN, _pooled),
    ("DeiTForImageClassification", PLAIN, _logits),
    ("DeiTForImageClassificationWithTeacher", PLAIN, _logits),
    ("ViTMAEModel", {**PLAIN, "mask_ratio": 0.0}, _first),
    ("ViTMSNModel", PLAIN, _first),
    ("ViTMSNForImageClassification", PLAIN, _logits),
    ("IJepaModel", PLAIN, _mean),
    ("IJepaForImageClassification", PLAIN, _logits),
    ("Dinov2Model", DINOV2, _pooled),
    ("Dinov2Model", {**DINOV2, "use_swiglu_ffn": True}, _pooled),
    ("Dinov2ForImageClassification", DINOV2, _logits),
    ("Dinov2WithRegistersModel", {**DINOV2, "num_register_tokens": 2}, _pooled),
    ("Dinov2WithRegistersForImageClassification", DINOV2, _logits),
    ("DINOv3ViTModel", ROPE, _pooled),
    ("DINOv3ViTModel", {**ROPE, "use_gated_mlp": True, "hidden_act": "silu"}, _pooled),
    ("DINOv3ViTModel", {**ROPE, "key_bias": True, "mlp_bias": False, "rope_theta": 50.0}, _pooled),
    ("CLIPVisionModel", PLAIN, _pooled),
    ("CLIPVisionModel", {**PLAIN, "hidden_act": "gelu"}, _pooled),
    ("CLIPVisionModelWithProjection", {**PLAIN, "projection_dim": 7}, _embeds),
    ("CLIPForImageClassification", PLAIN, _logits),
    ("SiglipVisionModel", PLAIN, _pooled),
    ("SiglipForImageClassification", PLAIN, _logits),
    ("FlavaImageModel", PLAIN, _pooled),
)


CASES = named(_ROWS, _case, {*PLAIN, "num_register_tokens"})
