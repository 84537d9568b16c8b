"""Other libraries' names of arguments, and their equivalents in keras_vit."""

from typing import Any

_FIELDS = {
    "hidden_size": "embed_dim dim hidden_dim width emb_dim d_model",
    "num_layers": "depth num_hidden_layers n_layers transformer_layers",
    "num_heads": "num_attention_heads heads n_heads attention_heads",
    "mlp_dim": "intermediate_size intermediate_dim ffn_dim mlp_hidden_dim",
    "patch_size": "patch patches patch_dim patch_shape",
    "channels": "in_chans num_channels in_channels input_channels",
    "num_classes": "classes num_labels n_classes num_outputs",
    "image_size": "img_size input_size image_shape_2d resolution",
    "dropout_rate": "drop_rate hidden_dropout_prob proj_drop_rate pos_drop_rate p_drop",
    "attention_dropout_rate": "attn_drop_rate attention_dropout attention_probs_dropout_prob",
    "stochastic_depth_rate": (
        "drop_path_rate drop_path stochastic_depth stochastic_depth_prob survival_probability"
    ),
    "representation_size": "pre_logits_size pooler_output_size representation_dim",
    "pool.kind": "pooling classifier global_pool pool_type pool_mode",
    "pool.norm": "fc_norm",
    "tokens.class_tokens": "class_token use_class_token cls_token",
    "tokens.registers": "reg_tokens num_register_tokens num_registers",
    "block.activation": "hidden_act act_layer",
    "block.epsilon": "layer_norm_eps layer_norm_epsilon norm_eps",
    "position": "posemb pos_embed_type position_embedding_type",
    "remat": "gradient_checkpointing use_checkpoint grad_checkpointing",
    "data_format": "image_data_format",
    "protocol": "preprocessing preprocessor transform",
    "class_names": "id2label labels classes_names label_names",
}
"""An argument of keras_vit, or the path of a field of a part, and other libraries' names for it."""

_SENTENCES = {
    "mlp_ratio": "give mlp_dim, which is mlp_ratio * hidden_size",
    "include_top": "num_classes=0 makes a model without a head",
    "pretrained": "VisionTransformer.from_preset(name) loads trained weights, builders do not",
    "preset": "VisionTransformer.from_preset(name) loads a preset",
    "checkpoint_path": "VisionTransformer.from_preset(path) reads a file of weights",
    "input_shape": "give image_size=(height, width) and channels",
    "image_shape": "give image_size=(height, width) and channels",
    "input_tensor": "call the model on the tensor",
    "dynamic_img_size": "image_size=(None, None) makes a model that takes any size",
    "interpolate_pos_encoding": "image_size=(None, None) makes a model that takes any size",
    "trainable_backbone": "keras_vit.training.train_head(model) freezes all but the head",
}
"""Names without an exact equivalent in keras_vit, and the advice for each."""


def _state(field: str) -> str:
    part, _, name = field.rpartition(".")
    return f"{part}={{{name!r}: ...}}" if part else field


ANSWERS = {
    **{
        word: f"{word} is {_state(field)} here"
        for field, words in _FIELDS.items()
        for word in words.split()
    },
    **{word: f"{word} is not an argument here: {advice}" for word, advice in _SENTENCES.items()},
}
"""The answer to each name of another library: a sentence without its full stop."""


def answer_to(word: Any) -> str:
    """Returns `" drop_path_rate is stochastic_depth_rate here."` for another library's name."""
    if word in ("task", "classifier_activation", "rescale"):
        return f" {word} is an argument of VisionTransformer, not of its network."
    return f" {ANSWERS[word]}." if isinstance(word, str) and word in ANSWERS else ""
