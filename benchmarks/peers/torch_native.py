"""timm and transformers, as their users run them."""

import importlib
from typing import Any

import torch

from benchmarks.peers import Job, Step
from benchmarks.sizes import Size


def torch_device() -> str:
    """The accelerator if there is one."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def allow_torchvision() -> None:
    """timm and transformers import torchvision, whose operators need the torch of its build."""
    importlib.import_module("tests.torchvision_shim")


def synchronize() -> None:
    """Waits for the accelerator."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def timm(job: Job, compiled: bool = False) -> Step:
    """timm's VisionTransformer, eager or through `torch.compile`."""
    return _step(job, timm_model(job.size), compiled)


def timm_model(size: Size) -> Any:
    """timm's VisionTransformer of a size."""
    allow_torchvision()
    if size.family:
        return _timm_family(size)
    from timm.models.vision_transformer import VisionTransformer

    return VisionTransformer(
        img_size=size.image_size,
        patch_size=size.patch_size,
        embed_dim=size.hidden_size,
        depth=size.num_layers,
        num_heads=size.num_heads,
        mlp_ratio=size.mlp_dim / size.hidden_size,
        num_classes=size.num_classes,
    )


_TIMM_NAMES = {
    "dinov2": "vit_small_patch14_dinov2",
    "dinov3": "vit_small_patch16_dinov3_qkvb",
    "siglip": "vit_base_patch16_siglip_224",
    "clip": "vit_base_patch32_clip_quickgelu_224",
}


def _timm_family(size: Size) -> Any:
    """timm's model of a family with a linear head."""
    import timm

    pool = {"global_pool": "token"} if size.family == "dinov3" else {}
    return timm.create_model(
        _TIMM_NAMES[size.family],
        img_size=size.image_size,
        num_classes=size.num_classes,
        embed_dim=size.hidden_size,
        depth=size.num_layers,
        num_heads=size.num_heads,
        **pool,
    )


_TRANSFORMERS_NAMES = {
    "": "ViTModel",
    "dinov2": "Dinov2Model",
    "dinov3": "DINOv3ViTModel",
    "siglip": "SiglipVisionModel",
    "clip": "CLIPVisionModel",
}


def transformers(job: Job) -> Step:
    """The vision model of transformers with PyTorch's own attention and a linear head.

    The head of a family reads the pooled output, the head of the paper's model the class token.
    """
    allow_torchvision()
    import transformers

    size = job.size
    kind = getattr(transformers, _TRANSFORMERS_NAMES[size.family])
    config = kind.config_class(
        hidden_size=size.hidden_size,
        num_hidden_layers=size.num_layers,
        num_attention_heads=size.num_heads,
        image_size=size.image_size,
        patch_size=size.patch_size,
        attn_implementation="sdpa",
        **({} if size.family == "dinov2" else {"intermediate_size": size.mlp_dim}),
        **({"num_register_tokens": 4} if size.family == "dinov3" else {}),
    )

    class Classifier(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.vision = kind(config) if size.family else kind(config, add_pooling_layer=False)
            self.head = torch.nn.Linear(size.hidden_size, size.num_classes)

        def forward(self, images: Any) -> Any:
            found = self.vision(images)
            return self.head(found.pooler_output if size.family else found[0][:, 0])

    return _step(job, Classifier(), compiled=False)


def _step(job: Job, model: Any, compiled: bool) -> Step:
    device, dtype = torch_device(), getattr(torch, job.dtype)
    model = model.to(device, dtype)
    side = job.size.image_size
    images = torch.randn(job.batch, 3, side, side).to(device, dtype)
    run = torch.compile(model) if compiled else model
    if job.task == "forward":
        model.eval()

        @torch.inference_mode()
        def forward(steps: int) -> None:
            for _ in range(steps):
                run(images).cpu()

        forward(2)
        return forward

    model.train()
    labels = torch.randint(0, job.size.num_classes, (job.batch,), device=device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.03)

    def train(steps: int) -> None:
        for _ in range(steps):
            loss = torch.nn.functional.cross_entropy(run(images).float(), labels)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
        synchronize()

    train(2)
    return train
