"""Names of arrays as a library's files have them, from the names in a model during its training."""

import re
from collections.abc import Iterable

Rules = Iterable[tuple[str, str]]

_MODULE = r"(?<![^.])"
"""The start of the name of a module."""
_WRAPPERS: Rules = (
    # Modules around a part of a model: torch.compile, DistributedDataParallel, FSDP, and the
    # recomputation of activations.
    (r"(?<=\.)(?:_orig_mod|module|_fsdp_wrapped_module|_checkpoint_wrapped_module)\.", ""),
    # DINOv2's blocks in chunks; the second number counts the blocks of the whole model.
    (_MODULE + r"blocks\.\d+\.(?=\d+\.)", "blocks."),
)
_LAYERS = _MODULE + r"(?<!encoder\.)layers(\.\d+\.)"
_ATTENTION = _MODULE + r"(encoder\.layer\.\d+\.attention\.)"
_TRANSFORMERS_5: Rules = (
    (_LAYERS + r"mlp\.fc1\.", r"encoder.layer\1intermediate.dense."),
    (_LAYERS + r"mlp\.fc2\.", r"encoder.layer\1output.dense."),
    (_LAYERS + r"(?=attention\.|layernorm_|lambda_)", r"encoder.layer\1"),
    (_ATTENTION + r"q_proj\.", r"\1attention.query."),
    (_ATTENTION + r"k_proj\.", r"\1attention.key."),
    (_ATTENTION + r"v_proj\.", r"\1attention.value."),
    (_ATTENTION + r"o_proj\.", r"\1output.dense."),
)
"""transformers 5 renames the layers of ViT, DeiT, BEiT, MAE, DINOv2 and others in memory; its files
keep the names of transformers 4. The files of InternVL have some of the names on the left."""


def plain_name(name: str) -> str:
    """Returns the name of an array in the model itself, without the modules around its parts."""
    return _replaced(name, _WRAPPERS)


def name_in_file(name: str) -> str:
    """Returns the name in transformers' files of an array of its model in memory."""
    return _replaced(name, _TRANSFORMERS_5)


def _replaced(name: str, rules: Rules) -> str:
    for pattern, replacement in rules:
        name = re.sub(pattern, replacement, name)
    return name
