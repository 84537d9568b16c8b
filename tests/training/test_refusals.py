"""Arguments that recipes, optimizers and trainings refuse, before a weight or a file is changed."""

from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from keras_vit import finetune, pretrain
from keras_vit.data import AUGREG, from_arrays
from keras_vit.errors import CheckpointError, ConfigError, SourceError
from keras_vit.training import (
    AugregRecipe,
    LayerwiseAdamW,
    PretrainRecipe,
    Resume,
    SelfSupervised,
    TransferRecipe,
    enable_lora,
    layer_decay_multipliers,
    train,
    train_only,
)
from tests.helpers import tiny
from tests.training.runs import fit, small_model


def transfer(world, **options):
    return TransferRecipe(**{"steps": 100, "batch_size": 8, **options}).compile_args(world.model)


def many(recipe=TransferRecipe, **options):
    """The arguments of a recipe for a multi-label model."""
    return recipe(100, 8, **options).compile_args(tiny(num_classes=3, task="multi_label"))


RECIPE = {"accumulate": 2, "augmentation": "light1", "seed": 3, "one_hot": True}


def train_on(world, task="single_label", **changes):
    """A training by a recipe on the data of `RECIPE`'s arguments with changes."""
    model, images = tiny(num_classes=3, task=task), np.zeros((8, 16, 16, 3), "uint8")
    recipe = TransferRecipe(4, 4, **RECIPE)
    prepared = from_arrays(images, np.arange(8) % 3, model, **{**recipe.data_args, **changes})
    train(model, prepared, recipe=recipe, path=world.out)


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


def adapted():
    """A model with LoRA matrices, which a preset file, with kernels alone, would lose."""
    model = tiny()
    enable_lora(model, 2)
    return model


def views(given=None, image_size=None, num_classes=0, projector=(8,), **fields):
    """A model that is trained by views without labels."""
    encoder = tiny(image_size=image_size, num_classes=num_classes, **fields)
    return SelfSupervised(encoder, given, projector=projector)


def copies(world, path="out", labels=None, source="vit_digits", **options):
    """A training without labels on a hundred copies of one image."""
    (world.path / "copies" / "more").mkdir(parents=True)
    for k in range(100):
        Image.new("L", (16, 16), 90).save(world.path / "copies" / f"{k}.png")
    places = {"path": world.path / path, "labels": labels and world.path / labels}
    pretrain(world.path / "copies", source=source, **places, **options)


ADAMW = LayerwiseAdamW()
PRETRAIN, PACKED = PretrainRecipe(1, 4), {"kind": "packed"}
SMOOTH = {"positive_weights": (1, 2, 3), "label_smoothing": 0.1}
REFUSALS = {
    "steps": (lambda w: transfer(w, steps=0), ConfigError, "steps must be a positive int, found 0"),
    "parts": (lambda w: transfer(w, accumulate=3), ConfigError, "batch_size=8"),
    "warm-up": (lambda w: transfer(w, warmup_steps=100), ConfigError, "0 to 99"),
    "average": (lambda w: transfer(w, ema=1.0), ConfigError, "ema"),
    "sparse": (lambda w: transfer(w, label_smoothing=0.1), ConfigError, "one_hot=True"),
    "one label": (lambda w: transfer(w, positive_weights=(1, 2, 3)), ConfigError, "multi_label"),
    "optimizer": (lambda w: transfer(w, optimizer="adam"), ConfigError, "sgd, adamw"),
    "field": (lambda w: TransferRecipe.from_dict({"stepz": 4}), ConfigError, "'steps'"),
    "features": (
        lambda w: TransferRecipe(100).compile_args(tiny(num_classes=0)),
        ConfigError,
        "num_classes=n",
    ),
    "dense": (
        lambda w: finetune("vit_digits", w.path, path=w.out, dense={"stages": (4,)}),
        ConfigError,
        "Omit dense=",
    ),
    "softmax": (lambda w: many(AugregRecipe, loss="softmax"), ConfigError, "loss='sigmoid'"),
    "two weights": (lambda w: many(positive_weights=(1, 2)), ConfigError, "3 values above 0"),
    "smooth weights": (lambda w: many(**SMOOTH), ConfigError, "positive_weights"),
    "classes for many": (lambda w: train_on(w, task="multi_label"), ConfigError, "'single_label'"),
    "batches": (lambda w: train_on(w, batch_size=4), ConfigError, "batch_size=4"),
    "layer": (lambda w: train_only(w.model, ["blok_0"]), ConfigError, "'blok_0'"),
    "layer decay": (lambda w: layer_decay_multipliers(w.model, 1.5), ConfigError, "1.5"),
    "projection": (lambda w: enable_lora(w.model, 2, ["query"]), ConfigError, "['query']"),
    "adapted": (lambda w: enable_lora(adapted(), 2), ConfigError, "merge_lora"),
    "unmerged": (lambda w: adapted().save_to_preset(w.out), CheckpointError, "merge_lora"),
    "16 bits": (
        lambda w: ADAMW.build(tiny(dtype="bfloat16").weights),
        ConfigError,
        "mixed_bfloat16",
    ),
    "no epoch": (lambda w: Resume(w.out, np.zeros(3)), ConfigError, "ndarray"),
    "other rate": (lambda w: resume(w, rate=0.2), CheckpointError, "learning_rate: was 0.1"),
    "more epochs": (lambda w: resume(w, 3), CheckpointError, "epochs: was 2, now 3"),
    "strong": (lambda w: resume(w, augmentation="strong1"), CheckpointError, "mixup: was"),
    "first epoch": (begin_again, CheckpointError, "initial_epoch=resume"),
    "smooth views": (lambda w: PretrainRecipe(9, label_smoothing=0.1), ConfigError, "with labels"),
    "head": (lambda w: views(num_classes=5), ConfigError, "num_classes=5"),
    "unpooled": (lambda w: views(pool={"kind": "unpooled"}), ConfigError, "'unpooled'"),
    "packed": (lambda w: views(image_size=16, stem=PACKED), ConfigError, "stem.kind='packed'"),
    "part of a patch": (lambda w: views({"local_size": 20}), ConfigError, "local_views of 20x20"),
    "one size": (lambda w: views(image_size=16), ConfigError, "image_size=(None, None)"),
    "projector": (lambda w: views(projector=()), ConfigError, "positive ints"),
    "weighted": (lambda w: views().compute_loss(sample_weight=[1]), ConfigError, "class_weight"),
    "steps twice": (lambda w: copies(w, steps=3, recipe=PRETRAIN), ConfigError, "steps=3"),
    "labelled": (lambda w: copies(w, recipe=TransferRecipe(9)), ConfigError, "TransferRecipe"),
    "rate": (lambda w: copies(w, learning_rate=0.1), ConfigError, "recipe=PretrainRecipe("),
    "labels inside": (lambda w: copies(w, labels="copies/more"), ConfigError, "training images"),
    "path inside": (lambda w: copies(w, "copies/run"), ConfigError, "copies/run' is inside"),
    "path in labels": (lambda w: copies(w, "out/run", "out"), ConfigError, "out/run' is inside"),
    "copies": (lambda w: copies(w, recipe=PRETRAIN), ConfigError, "the same embedding"),
    "source": (lambda w: copies(w, source="vit_ti61"), SourceError, "'vit_ti16'"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals(name, world, messages):
    trainable = len(world.model.trainable_weights)
    messages.check(name, REFUSALS, world)
    assert len(world.model.trainable_weights) == trainable
