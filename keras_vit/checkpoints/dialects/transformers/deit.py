"""transformers' DeiT (arXiv 2012.12877): ViT with a distillation token, and a head for it or not."""

from keras_vit.checkpoints.dialects.names import TORCH, Section
from keras_vit.checkpoints.dialects.transformers import common, vit

_NAMES: Section = {
    "distillation_token/token": "embeddings.distillation_token",
    "head/{head}": {
        "name": "{cls}_classifier",
        "implies": {"pooling": "token_and_distillation", "representation_size": None},
        "outside": True,
    },
}


FAMILIES = (
    vit.family_with_blocks(
        "deit",
        "deit.",
        ("DeiTForImageClassification", "DeiTModel"),
        {**vit.POOLER, **TORCH.names(_NAMES), **common.classifier_names(**vit.NO_POOLER)},
        poolings=("token", "token_and_distillation"),
        fields={"distillation_token": True},
        rows=vit.POOLER_ROWS,
        impossible={
            **vit.NOT_BOTH,
            "two heads without classes": "pooling=token_and_distillation num_classes!",
        },
    ),
)
