"""Arguments that recipes, optimizers and trainings refuse, before a weight or a file is changed."""

from types import SimpleNamespace

import numpy as np
import pytest

from keras_vit.data import AUGREG, from_arrays
from keras_vit.errors import CheckpointError, ConfigError
from keras_vit.training import (
    AugregRecipe,
    LayerwiseAdamW,
    Resume,
    TransferRecipe,
    enable_lora,
    layer_decay_multipliers,
    train,
    train_last_blocks,
    train_only,
    zero_head,
)
from tests.helpers import tiny
from tests.training.runs import fit, small_model


def transfer(world, **options):
    return TransferRecipe(**{"steps": 100, "batch_size": 8, **options}).compile_args(world.model)


def augreg(world, **options):
    return AugregRecipe(100, 8, **options).compile_args(world.model)


def many(recipe=TransferRecipe, **options):
    """The arguments of a recipe for a multi-label model."""
    return recipe(100, 8, **options).compile_args(tiny(num_classes=3, task="multi_label"))


RECIPE = {"accumulate": 2, "augmentation": "light1", "seed": 3, "one_hot": True}
LABELS = np.arange(8) % 3


def train_on(world, labels=LABELS, task="single_label", recipe=RECIPE, **changes):
    """A training by a recipe on the data of `RECIPE`'s arguments with changes."""
    model, images = tiny(num_classes=3, task=task), np.zeros((8, 16, 16, 3), "uint8")
    data = {**TransferRecipe(4, 4, **RECIPE).data_args, **changes}
    prepared = from_arrays(images, labels, model, **data)
    train(model, prepared, recipe=TransferRecipe(4, 4, **recipe), path=world.out)


def smooth_numbers(world):
    """A training on numbers with smoothed labels."""
    model = tiny(num_classes=1, task="regression")
    data = from_arrays(np.zeros((8, 16, 16, 3), "uint8"), np.arange(8.0), model, 8)
    recipe = AugregRecipe(2, 8, label_smoothing=0.1)
    train(model, data, recipe=recipe, path=world.out)


def resume(world, epochs=2, rate=0.1, augmentation="light1"):
    """Continues a training of two epochs with light augmentation under other settings."""
    begun, now = (
        SimpleNamespace(epoch=0, augmentation=AUGREG[name]) for name in ("light1", augmentation)
    )
    fit(small_model(), world.path, data=begun)
    fit(small_model(rate), world.path, epochs, data=now)


def begin_again(world):
    """Trains from epoch 0 although a state exists."""
    fit(small_model(), world.path)
    options = {"epochs": 2, "batch_size": 4, "callbacks": [Resume(world.path, None)]}
    small_model().fit(np.ones((8, 2)), np.ones(8), verbose=0, **options)


def read_other_file(world):
    """Continues a training whose state is a file without arrays."""
    fit(small_model(), world.path)
    (world.path / "state.safetensors").write_bytes(b"\2" + 7 * b"\0" + b"{}")
    fit(small_model(), world.path)


def adapted():
    """A model with LoRA matrices, which a preset file, with kernels alone, would lose."""
    model = tiny()
    enable_lora(model, 2)
    return model


ADAMW = LayerwiseAdamW()
ONE_HOT = np.eye(8)[:, :3] > 0
INTEGERS = {"one_hot": False, "augmentation": None}
PLAIN = {**RECIPE, "augmentation": "none"}
SMOOTH = {"positive_weights": (1, 2, 3), "label_smoothing": 0.1}
REFUSALS = {
    "steps": (lambda w: transfer(w, steps=0), ConfigError, "steps must be a positive int, found 0"),
    "parts": (lambda w: transfer(w, accumulate=3), ConfigError, "batch_size=8"),
    "epoch": (lambda w: transfer(w, steps_per_epoch=0), ConfigError, "steps_per_epoch"),
    "decay": (lambda w: transfer(w, decay="rsqrt"), ConfigError, "decay='rsqrt'"),
    "warm-up": (lambda w: transfer(w, warmup_steps=100), ConfigError, "0 to 99"),
    "rate": (lambda w: transfer(w, learning_rate=0.0), ConfigError, "learning_rate"),
    "average": (lambda w: transfer(w, ema=1.0), ConfigError, "ema"),
    "sparse": (lambda w: transfer(w, label_smoothing=0.1), ConfigError, "one_hot=True"),
    "one label": (lambda w: transfer(w, positive_weights=(1, 2, 3)), ConfigError, "multi_label"),
    "optimizer": (lambda w: transfer(w, optimizer="adam"), ConfigError, "sgd, adamw"),
    "seed": (lambda w: transfer(w, seed=-1), ConfigError, "seed"),
    "field": (lambda w: TransferRecipe.from_dict({"stepz": 4}), ConfigError, "'steps'"),
    "features": (
        lambda w: TransferRecipe(100).compile_args(tiny(num_classes=0)),
        ConfigError,
        "num_classes=n",
    ),
    "loss": (lambda w: augreg(w, loss="hinge"), ConfigError, "softmax, sigmoid"),
    "classes": (lambda w: augreg(w, loss="sigmoid", one_hot=False), ConfigError, "'sigmoid'"),
    "softmax": (lambda w: many(AugregRecipe, loss="softmax"), ConfigError, "loss='sigmoid'"),
    "two weights": (lambda w: many(positive_weights=(1, 2)), ConfigError, "for each of 3"),
    "one weight": (lambda w: many(positive_weights=2.0), ConfigError, "for each of 3"),
    "weight of zero": (lambda w: many(positive_weights=[1, 0, 2]), ConfigError, "above 0"),
    "infinite weight": (lambda w: many(positive_weights=[1, 2, np.inf]), ConfigError, "above 0"),
    "text": (lambda w: many(positive_weights="abc"), ConfigError, "above 0"),
    "smooth weights": (lambda w: many(**SMOOTH), ConfigError, "positive_weights"),
    "classes for many": (lambda w: train_on(w, task="multi_label"), ConfigError, "'single_label'"),
    "many for one": (lambda w: train_on(w, ONE_HOT), ConfigError, "task='multi_label'"),
    "batches": (lambda w: train_on(w, batch_size=4), ConfigError, "batch_size=4"),
    "seed of data": (lambda w: train_on(w, seed=4), ConfigError, "the data have seed=4"),
    "crops": (lambda w: train_on(w, augmentation="crop_flip"), ConfigError, "augmentation="),
    "no recipe's": (lambda w: train_on(w, recipe=PLAIN), ConfigError, "augmentation=None"),
    "integers": (lambda w: train_on(w, **INTEGERS), ConfigError, "augmentation="),
    "smooth numbers": (smooth_numbers, ConfigError, "label_smoothing=0.1"),
    "layer": (lambda w: train_only(w.model, ["blok_0"]), ConfigError, "'blok_0'"),
    "blocks": (lambda w: train_last_blocks(w.model, 3), ConfigError, "The last 3 blocks"),
    "layer decay": (lambda w: layer_decay_multipliers(w.model, 1.5), ConfigError, "1.5"),
    "rank": (lambda w: enable_lora(w.model, 0), ConfigError, "found 0"),
    "projection": (lambda w: enable_lora(w.model, 2, ["query"]), ConfigError, "['query']"),
    "adapted": (lambda w: enable_lora(adapted(), 2), ConfigError, "merge_lora"),
    "unmerged": (lambda w: adapted().save_to_preset(w.out), CheckpointError, "merge_lora"),
    "no head": (lambda w: zero_head(tiny(num_classes=0)), ConfigError, "num_classes=0"),
    "16 bits": (
        lambda w: ADAMW.build(tiny(dtype="bfloat16").weights),
        ConfigError,
        "mixed_bfloat16",
    ),
    "no epoch": (lambda w: Resume(w.out, np.zeros(3)), ConfigError, "ndarray"),
    "other rate": (lambda w: resume(w, rate=0.2), CheckpointError, "learning_rate: begun with 0.1"),
    "more epochs": (lambda w: resume(w, 3), CheckpointError, "epochs: begun with 2, now 3"),
    "strong": (lambda w: resume(w, augmentation="strong1"), CheckpointError, "mixup: begun with"),
    "first epoch": (begin_again, CheckpointError, "initial_epoch=resume"),
    "no state": (read_other_file, CheckpointError, "state.safetensors: not a whole state"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals(name, world, messages):
    trainable = len(world.model.trainable_weights)
    messages.check(name, REFUSALS, world)
    assert len(world.model.trainable_weights) == trainable
