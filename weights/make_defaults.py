"""Writes the defaults of transformers' configurations, for keys that keras_vit does not read.

    python -m weights.make_defaults            # needs transformers

`keras_vit.checkpoints.unread_keys` compares a config.json with them. Keys whose default is None,
False or 0 are left out: such a value changes no network.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from keras_vit.checkpoints.dialects import DIALECTS
from keras_vit.checkpoints.unread_keys import FILE, find_keys

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
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    every = transformers.PreTrainedConfig().to_dict()
    every |= transformers.GenerationConfig().to_dict()
    others = "|".join([_OTHERS, *sorted(every)])
    families: dict[str, Any] = {}
    for name, dialect in DIALECTS.items():
        identity = dialect.identity
        if dialect.library != "transformers" or identity is None or callable(identity.values):
            continue
        where, listed = find_keys(dialect)
        kind = CONFIG_MAPPING[identity.values[0]]
        for part in where:
            kind = kind.sub_configs[part]
        own = kind().to_dict().items()
        rest = {k: v for k, v in own if v and k not in listed}
        families[name] = {k: v for k, v in rest.items() if not re.fullmatch(others, k)}
    families = {name: own for name, own in families.items() if own}
    return {"transformers": transformers.__version__, "others": others, "families": families}


def text(content: Mapping[str, Any]) -> str:
    """Returns the file: a line for each family."""
    rows = ",\n".join(f'  "{k}": {json.dumps(v)}' for k, v in content["families"].items())
    head = {key: value for key, value in content.items() if key != "families"}
    return f'{json.dumps(head)[:-1]},\n "families": {{\n{rows}\n }}\n}}\n'


if __name__ == "__main__":
    FILE.write_text(text(read_defaults()), encoding="utf-8")
