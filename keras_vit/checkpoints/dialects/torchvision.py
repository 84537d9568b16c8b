"""torchvision's `VisionTransformer` (`vit_b_16` and its kin): a state dict, without JSON.

Query, key and value are one array, as in torch's MultiheadAttention. The number of heads does not
follow from the arrays.
"""

from keras_vit.checkpoints.dialects.base import (
    Dialect,
    Names,
    PreparationWords,
    StoredAs,
    alternatives,
    with_reasons,
)
from keras_vit.checkpoints.dialects.torch_layout import (
    IMAGENET,
    POSITIONS_OF_ANOTHER_GRID,
    torch_modules,
)
from keras_vit.config import Numerics
from keras_vit.images.protocols import ProtocolSpec

_BLOCK = "encoder.layers.encoder_layer_{l}."


def _mlp(first: str, second: str) -> dict[str, StoredAs]:
    return torch_modules(
        {
            "block_{l}/mlp/dense_0": f"{_BLOCK}mlp.{first}",
            "block_{l}/mlp/dense_1": f"{_BLOCK}mlp.{second}",
        }
    )


_WORDS: dict[str, Names] = {
    "class_token/token": StoredAs("class_token"),
    "position_embedding/embedding": StoredAs("encoder.pos_embedding"),
    "block_{l}/attention/{qkv}/kernel": StoredAs(
        _BLOCK + "self_attention.in_proj_weight", "(qkv h d) m"
    ),
    "block_{l}/attention/{qkv}/bias": StoredAs(_BLOCK + "self_attention.in_proj_bias", "(qkv h d)"),
    **torch_modules(
        {
            "patch_embedding": "conv_proj",
            "block_{l}/attention_norm": _BLOCK + "ln_1",
            "block_{l}/attention/out": _BLOCK + "self_attention.out_proj",
            "block_{l}/mlp_norm": _BLOCK + "ln_2",
            "encoder_norm": "encoder.ln",
            "pre_logits": "heads.pre_logits",
            "head": "heads.head",
        }
    ),
    # By the layer's index, or, before release 0.13, by a name.
    **alternatives(_mlp("0", "3"), _mlp("linear_1", "linear_2")),
}

_REASONS = {
    "root/": "torchvision's VisionTransformer has no ResNet stem",
    "stage": "torchvision's VisionTransformer has no ResNet stem",
    "": "torchvision's VisionTransformer has no such part",
}

_IMAGENET: ProtocolSpec = {**IMAGENET, "interpolation": "bilinear"}

torchvision = Dialect(
    name="torchvision",
    library="torchvision",
    container="safetensors",
    words=with_reasons(_REASONS, _WORDS),
    images=PreparationWords(default=lambda config: _IMAGENET),
    numerics=Numerics(gelu="exact", position_resize="bicubic"),
    fields={
        "classifier": "token",
        "position": "learned",
        "position_before_class": False,
        "qkv_bias": True,
    },
    impossible=(
        (lambda c: c.classifier != "token", "a classifier other than 'token'"),
        (lambda c: c.position != "learned", "position='sincos2d'"),
        (lambda c: c.position_before_class, "position_before_class=True"),
        (lambda c: c.qkv_bias is not True, "qkv_bias=False"),
        (lambda c: len({*c.patch_size}) > 1, "patches of another shape than a square"),
        (lambda c: len({*c.source_grid}) > 1, "a grid of another shape than a square"),
        (lambda c: c.num_classes == 0, "num_classes=0"),
        POSITIONS_OF_ANOTHER_GRID,
    ),
    crops=False,
    metadata={"format": "pt"},
)
