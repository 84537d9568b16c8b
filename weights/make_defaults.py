"""Writes the default values of transformers' own classes, which config.json may leave out.

    python -m weights.make_defaults            # needs transformers

Reading completes a config.json by them, and names the keys that differ from them and are not read.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from keras_vit.checkpoints.families import FORMATS
from keras_vit.checkpoints.families.transformers.library import DEFAULTS, OF_DECODER

_OTHERS = (
    "_.*|auto_map|torch_.*|tie_word_embeddings|gradient_checkpointing|initializer_.*|vocab_size|"
    "mask_ratio|encoder_stride|decoder_.*|auxiliary_.*|semantic_.*|use_auxiliary_head|pool_scales|"
    "neck_.*|fusion_.*|reassemble_.*|readout_type|head_in_index|projection_dim|pooler_output_size|"
    "(backbone_)?out_(features|indices)|stage_names|reshape_hidden_states|apply_layernorm|"
    "interpolate_.*|rope_parameters|image_size|norm_mean|norm_std|(video_)?patch_dim|"
    ".*dropout.*|drop_path_rate|pos_embed_(rescale|shift|jitter)|(use_)?mask_token|norm_pix_loss|"
    "add_(fpn|projection)|use_.*_in_fusion_residual|finetuning_task|task_specific_params|"
    r"tokenizer_class|transformers\.js_config|unsloth_.*"
)
"""Keys of older releases, of training, of modules that read the network's outputs; and sizes and
the preparation of images, which are read elsewhere."""


def read_defaults() -> dict[str, Any]:
    """Returns the content of the file for the transformers that is installed."""
    import transformers

    every = transformers.PreTrainedConfig().to_dict()
    every |= transformers.GenerationConfig().to_dict()
    others = "|".join([_OTHERS, *sorted(every)])
    types: dict[str, Any] = {}
    for format in FORMATS:
        if format.library.name != "transformers":
            continue
        kind = format.row.inside or format.words[0]
        known = {name for keys in (*format.keys, *format.shapes) for name in keys.split()}
        own = types.setdefault(kind, {})
        for key, value in _find_config(kind)().to_dict().items():
            if "/" in kind and key not in OF_DECODER:  # those of the encoder have another type
                continue
            if value is not None and (key in known or (value and not re.fullmatch(others, key))):
                own[key] = value
    return {"transformers": transformers.__version__, "others": others, "types": types}


def _find_config(kind: str) -> Any:
    """Returns the class of a configuration, which may be a part of another one."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    kind = kind.partition("/")[0]  # of a whole model, whose encoder has a type of its own
    if kind in CONFIG_MAPPING:
        return CONFIG_MAPPING[kind]
    parts = (part for own in CONFIG_MAPPING.values() for part in own.sub_configs.values())
    return next(part for part in parts if getattr(part, "model_type", "") == kind)


def text(content: Mapping[str, Any]) -> str:
    """Returns the file: a line for each type."""
    rows = ",\n".join(f'  "{k}": {json.dumps(v)}' for k, v in content["types"].items())
    head = {key: value for key, value in content.items() if key != "types"}
    return f'{json.dumps(head)[:-1]},\n "types": {{\n{rows}\n }}\n}}\n'


if __name__ == "__main__":
    DEFAULTS.write_text(text(read_defaults()), encoding="utf-8")
