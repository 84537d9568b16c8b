"""Training as in the papers, by recipes for an ordinary `model.fit`."""

from keras_vit.finetune.lora import enable_lora, merge_lora
from keras_vit.finetune.muon import LayerwiseMuon
from keras_vit.finetune.optimizers import LayerwiseAdamW, LayerwiseSGD
from keras_vit.finetune.preset import Finetuned, Plan, finetune_preset
from keras_vit.finetune.recipes import Recipe, augreg_recipe, steps_for, transfer_recipe
from keras_vit.finetune.resume import Resume
from keras_vit.finetune.schedules import LinearDecay, PerUpdate
from keras_vit.finetune.trainable import (
    layer_decay_multipliers,
    train_head,
    train_last_blocks,
    train_only,
    zero_head,
)
from keras_vit.finetune.training import train

__all__ = [
    "Finetuned",
    "LayerwiseAdamW",
    "LayerwiseMuon",
    "LayerwiseSGD",
    "LinearDecay",
    "PerUpdate",
    "Plan",
    "Recipe",
    "Resume",
    "augreg_recipe",
    "enable_lora",
    "finetune_preset",
    "layer_decay_multipliers",
    "merge_lora",
    "steps_for",
    "train",
    "train_head",
    "train_last_blocks",
    "train_only",
    "transfer_recipe",
    "zero_head",
]
