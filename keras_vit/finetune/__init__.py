"""Fine-tuning and pre-training as in the papers, by recipes for an ordinary `model.fit`."""

from keras_vit.finetune.curves import draw_curves
from keras_vit.finetune.lora import enable_lora, merge_lora
from keras_vit.finetune.optimizers import LayerwiseAdamW, LayerwiseSGD
from keras_vit.finetune.preset import Finetuned, Plan, finetune_preset
from keras_vit.finetune.pretraining import Pretrained, PretrainingPlan, pretrain
from keras_vit.finetune.published import (
    FINE_TUNING,
    PRETRAINING,
    RATES,
    FineTuning,
    Pretraining,
    augreg_search,
    pretraining_recipe,
)
from keras_vit.finetune.recipes import Recipe, augreg_recipe, steps_for, transfer_recipe
from keras_vit.finetune.resume import Resume
from keras_vit.finetune.schedules import LinearDecay, PerUpdate
from keras_vit.finetune.sweep import sweep
from keras_vit.finetune.trainable import (
    layer_decay_multipliers,
    train_head,
    train_last_blocks,
    train_only,
    zero_head,
)
from keras_vit.finetune.training import train

__all__ = [
    "FINE_TUNING",
    "PRETRAINING",
    "RATES",
    "FineTuning",
    "Finetuned",
    "LayerwiseAdamW",
    "LayerwiseSGD",
    "LinearDecay",
    "PerUpdate",
    "Plan",
    "Pretrained",
    "Pretraining",
    "PretrainingPlan",
    "Recipe",
    "Resume",
    "augreg_recipe",
    "augreg_search",
    "draw_curves",
    "enable_lora",
    "finetune_preset",
    "layer_decay_multipliers",
    "merge_lora",
    "pretrain",
    "pretraining_recipe",
    "steps_for",
    "sweep",
    "train",
    "train_head",
    "train_last_blocks",
    "train_only",
    "transfer_recipe",
    "zero_head",
]
