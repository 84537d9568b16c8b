"""The official checkpoints of google-research/vision_transformer, such as `ViT-B_16.npz`.

There are two sets of names. `google` has the names from before flax linen, which every
published npz of the paper and of AugReg has: all submodules of a block are numbered together.
`google_linen` has the names that today's code writes: submodules are numbered per class. Sources:
`vit_jax/models_vit.py`, `vit_jax/models_resnet.py`, `vit_jax/checkpoint.py`.
"""

from collections.abc import Mapping

from keras_vit.checkpoints.families.family import Class, Family, Library, Rule
from keras_vit.checkpoints.families.names import FLAX, Section

LAYERS: Section = {
    "patch_embedding": "embedding",
    "class_token/token": "cls",
    "encoder_norm": "Transformer/encoder_norm",
    "pre_logits": "pre_logits",
    "head": "head",
}
"""The names outside of the blocks, which big_vision has too."""


def block(attention: int, norm: int, mlp: int, name: str = "encoderblock_{l}") -> Section:
    """Returns the names of a block.

    Args:
        attention: number of the attention layer among the submodules of the block.
        norm: number of the second norm.
        mlp: number of the MLP.
        name: name of the block.
    """
    block, attend = f"Transformer/{name}", f"MultiHeadDotProductAttention_{attention}"
    return {
        "block_{l}/attention_norm": f"{block}/LayerNorm_0",
        "block_{l}/attention/{qkv}": f"{block}/{attend}/{{qkv}}",
        "block_{l}/attention/out": f"{block}/{attend}/out",
        "block_{l}/mlp_norm": f"{block}/LayerNorm_{norm}",
        "block_{l}/mlp/dense_0": f"{block}/MlpBlock_{mlp}/Dense_0",
        "block_{l}/mlp/dense_1": f"{block}/MlpBlock_{mlp}/Dense_1",
    }


_STEM: Section = {
    "root/conv": "conv_root",
    "stage{s}_unit{u}/conv_proj": "block{s}/unit{u}/conv_proj",
    "stage{s}_unit{u}/conv1": "block{s}/unit{u}/conv1",
    "stage{s}_unit{u}/conv2": "block{s}/unit{u}/conv2",
    "stage{s}_unit{u}/conv3": "block{s}/unit{u}/conv3",
}


def _norms(ones: str) -> Section:
    """Returns the names of the stem's GroupNorms, with axes `ones` before the channels."""
    return {
        "root/norm": f"gn_root : {ones}w",
        "stage{s}_unit{u}/norm_proj": f"block{{s}}/unit{{u}}/gn_proj : {ones}o",
        "stage{s}_unit{u}/norm1": f"block{{s}}/unit{{u}}/gn1 : {ones}w",
        "stage{s}_unit{u}/norm2": f"block{{s}}/unit{{u}}/gn2 : {ones}w",
        "stage{s}_unit{u}/norm3": f"block{{s}}/unit{{u}}/gn3 : {ones}o",
    }


LIMITS: Mapping[str, Rule] = {
    "a class token that the head does not use": "tokens.class_tokens pool.kind=gap|map"
}
"""A limit of the official code and of big_vision."""

FAMILIES = (
    Family(
        "google",
        Library(
            "google-research/vision_transformer",
            "npz",
            FLAX,
            ignored={r"opt/state(/.*)?": "optimizer state", r"(opt/)?step": "training step"},
        ),
        names={
            **LAYERS,
            **_STEM,
            "position_embedding/embedding": "Transformer/posembed_input/pos_embedding",
        },
        classes={
            # The arrays of a GroupNorm in the published hybrids have four axes.
            "": Class(names={**block(attention=1, norm=2, mlp=3), **_norms("1 1 1 ")}),
            "linen": Class(
                name="_linen", names={**block(attention=0, norm=1, mlp=0), **_norms("")}
            ),
        },
        fixed={"position": "learned", "block.qkv_bias": True},
        limits=LIMITS,
    ),
)
