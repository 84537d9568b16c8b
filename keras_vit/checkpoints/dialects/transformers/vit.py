"""ViTModel and ViTForImageClassification of transformers.

Files of a classifier have the prefix `vit.` in every name except the head's; files of a ViTModel
have no prefix. The pooler of a ViTModel is the representation layer of keras_vit.
"""

from keras_vit.checkpoints.dialects.base import Dialect, Identity, Names, unsupported
from keras_vit.checkpoints.dialects.json_fields import (
    JsonConstant,
    JsonField,
    JsonNote,
    JsonTable,
    Row,
)
from keras_vit.checkpoints.dialects.torch_layout import POSITIONS_OF_ANOTHER_GRID, torch_modules
from keras_vit.checkpoints.dialects.transformers.common import (
    DROPOUT_ROWS,
    LABEL_ROWS,
    VIT_REASONS,
    architectures,
    arithmetic_rows,
    classifier_names,
    impossible,
    size_rows,
    vit_names,
)
from keras_vit.checkpoints.dialects.transformers.processor import processor
from keras_vit.config import Numerics

_NO_POOLER = {"representation_size": None}
"""A classifier reads the class token itself, even if the file also has a pooler."""

_WORDS: dict[str, Names] = {
    **vit_names(),
    **torch_modules({"pre_logits": "pooler.dense"}),
    **classifier_names(_NO_POOLER),
}

_ROWS: tuple[Row, ...] = (
    architectures("ViTForImageClassification", "ViTModel"),
    JsonConstant("model_type", "vit"),
    *size_rows(),
    JsonField("qkv_bias", "qkv_bias"),
    *arithmetic_rows("gelu", 1e-12),
    *DROPOUT_ROWS,
    JsonNote(
        "pooler_output_size",
        lambda facts: facts.config.representation_size or facts.config.hidden_size,
    ),
    JsonConstant("pooler_act", "tanh"),
    *LABEL_ROWS,
)

vit = Dialect(
    name="transformers",
    library="transformers",
    container="safetensors",
    words=unsupported(VIT_REASONS, _WORDS),
    prefixes=("vit.", ""),
    prefix_for=lambda config: "vit." if config.num_classes else "",
    ignored={r"(vit\.)?embeddings\.mask_token": "mask of masked image modelling"},
    identity=Identity("config.json", "model_type", "vit", "'vit'"),
    json=(JsonTable("config.json", _ROWS),),
    images=processor,
    numerics=Numerics(gelu="exact", layer_norm_epsilon=1e-12, position_resize="bicubic"),
    expresses=("gelu", "layer_norm_epsilon", "position_resize"),
    fields={"position": "learned", "position_before_class": False, "classifier": "token"},
    impossible=(*impossible("token"), POSITIONS_OF_ANOTHER_GRID),
    crops=False,
    metadata={"format": "pt"},
)
