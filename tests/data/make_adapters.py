"""Writes `tests/data/adapters`: adapters of PEFT, and the logits of the merged models.

    python -m tests.data.make_adapters

It needs peft and accelerate, beside timm and transformers; the files are of peft 0.21.2,
transformers 5.23 and timm 1.0.31. All weights are random. `vit` and `timm` are the bases; of the
adapters, `classifier` is on the bare encoder and `options` on the whole model of transformers;
`unmerged` is the state dict of a model of timm in training.
"""

import json
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

from tests import torchvision_shim  # noqa: F401

import timm  # isort: skip
import transformers  # isort: skip
from peft import LoraConfig, get_peft_model  # isort: skip

FOLDER = Path(__file__).parent / "adapters"
_SIZES = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "image_size": 16,
    "patch_size": 8,
    "num_labels": 3,
}
_TIMM = {
    "img_size": 16,
    "patch_size": 8,
    "embed_dim": 16,
    "depth": 2,
    "num_heads": 2,
    "mlp_ratio": 1.5,
    "num_classes": 3,
}
CASES = {
    "classifier": {
        "target_modules": ["q_proj", "v_proj"],
        "modules_to_save": ["classifier"],
        "rank_pattern": {"layers.1.attention.q_proj": 3},
        "alpha_pattern": {"layers.0.attention.v_proj": 5},
    },
    "options": {
        "target_modules": ["projection", "q_proj", "fc1", "fc2"],
        "use_rslora": True,
        "lora_bias": True,
        "bias": "all",
    },
    "unmerged": {"target_modules": ["qkv", "fc1"], "modules_to_save": ["head"]},
}


def _randomise(model: torch.nn.Module) -> None:
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2)


def main() -> None:
    """Writes bases, adapters and logits."""
    torch.manual_seed(0)
    images = torch.rand(2, 3, 16, 16) * 2 - 1
    expected = {"images": images.permute(0, 2, 3, 1).numpy()}
    whole = transformers.ViTForImageClassification(transformers.ViTConfig(**_SIZES))
    _randomise(whole)
    whole.save_pretrained(FOLDER / "vit")
    bare = transformers.ViTModel(whole.config)
    _randomise(bare)
    bare.save_pretrained(FOLDER / "vit_bare")
    plain = timm.models.vision_transformer.VisionTransformer(**_TIMM)
    _randomise(plain)
    models = {
        "classifier": transformers.ViTForImageClassification.from_pretrained(
            FOLDER / "vit_bare", num_labels=3
        ),
        "options": whole,
        "unmerged": plain,
    }
    for name, model in models.items():
        config = LoraConfig(r=2, lora_alpha=3, **CASES[name])
        adapted = get_peft_model(model, config).eval()
        for parameter in adapted.parameters():
            if parameter.requires_grad:
                torch.nn.init.normal_(parameter, std=0.2)
        adapted.save_pretrained(FOLDER / name)
        (FOLDER / name / "README.md").unlink()
        if name == "unmerged":
            (FOLDER / name / "adapter_model.safetensors").unlink()
            save_file(adapted.state_dict(), FOLDER / name / "model.safetensors")
        path = FOLDER / name / "adapter_config.json"
        content = json.loads(path.read_text())
        content["base_model_name_or_path"] = None
        path.write_text(json.dumps(content, indent=1) + "\n")
        with torch.no_grad():
            output = adapted.merge_and_unload()(images)
        expected[name] = (output if torch.is_tensor(output) else output.logits).numpy()
    np.savez(FOLDER / "expected.npz", **expected)


if __name__ == "__main__":
    main()
