"""The names of layers and parameters that the two code bases in flax share."""

FLAX_PARAMETERS = {"kernel": "/kernel", "gamma": "/scale", "beta": "/bias", "bias": "/bias"}
"""Name of a parameter in keras_vit -> its name in flax."""


def encoder_layers(
    block: str, attention_norm: str, attention: str, mlp_norm: str, mlp: str
) -> dict[str, str]:
    """Returns flax's name for each layer of the lexicon, from the patches to the head.

    Args:
        block: name of a block, with or without a placeholder for its number.
        attention_norm, attention, mlp_norm, mlp: names of the submodules of a block.
    """
    return {
        "patch_embedding": "embedding",
        "block_{l}/attention_norm": f"{block}/{attention_norm}",
        "block_{l}/attention/{qkv}": f"{block}/{attention}/{{qkv}}",
        "block_{l}/attention/out": f"{block}/{attention}/out",
        "block_{l}/mlp_norm": f"{block}/{mlp_norm}",
        "block_{l}/mlp/dense_0": f"{block}/{mlp}/Dense_0",
        "block_{l}/mlp/dense_1": f"{block}/{mlp}/Dense_1",
        "encoder_norm": "Transformer/encoder_norm",
        "pre_logits": "pre_logits",
        "head": "head",
    }
