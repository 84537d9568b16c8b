"""Arguments that recipes, optimizers and trainings refuse, before a weight or a file is changed."""

import numpy as np
import pytest

from keras_vit.data import from_arrays
from keras_vit.errors import CheckpointError, ConfigError
from keras_vit.training import (
    AugregRecipe,
    LayerwiseAdamW,
    Resume,
    TransferRecipe,
    enable_lora,
    layer_decay_multipliers,
    merge_lora,
    train,
    train_last_blocks,
    train_only,
    zero_head,
)
from tests.helpers import tiny

pytestmark = pytest.mark.every_backend


def recipe(model, **options):
    return TransferRecipe(**{"steps": 100, "batch_size": 8, **options}).compile_args(model)


def augreg(model, **options):
    return AugregRecipe(100, 8, **options).compile_args(model)


def many():
    return tiny(num_classes=3, task="multi_label")


def train_on(labels, model, **options):
    """A training on four images, in batches of two, by a recipe with other options."""
    data = from_arrays(np.zeros((4, 16, 16, 3), "uint8"), labels, model, 2)
    train(model, data, recipe=TransferRecipe(4, **options), path="absent")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: recipe(m, steps=0), "steps must be a positive int, found 0"),
        (lambda m: recipe(m, batch_size=10, accumulate=4), "batch_size=10 is not .*accumulate=4"),
        (lambda m: recipe(m, steps_per_epoch=0), "steps_per_epoch must be a positive int or None"),
        (lambda m: recipe(m, decay="rsqrt"), "decay='rsqrt' is not one of cosine, linear"),
        (lambda m: recipe(m, warmup_steps=100), "warmup_steps=100: expected 0 to 99, below steps"),
        (lambda m: recipe(m, learning_rate=0.0), "learning_rate must be a positive number or None"),
        (lambda m: recipe(m, ema=1.0), r"ema must be a number in \[0, 1\) or None, found"),
        (lambda m: recipe(m, label_smoothing=0.1), "label_smoothing=0.1 needs .* one_hot=True"),
        (lambda m: recipe(m, positive_weights=(1, 2, 3)), 'need a model with task="multi_label"'),
        (lambda m: recipe(m, optimizer="adam"), "not one of sgd, adamw"),
        (lambda m: recipe(m, seed=-1), "seed must be an int of at least 0"),
        (lambda m: recipe(tiny(num_classes=0)), r"num_classes=0.*\(..., num_classes=n\)"),
        (lambda m: augreg(m, loss="hinge"), "'hinge' is not one of softmax, sigmoid"),
        (lambda m: augreg(m, loss="sigmoid", one_hot=False), "'sigmoid' needs labels"),
        (lambda m: augreg(many(), loss="softmax"), "needs loss='sigmoid'"),
        (lambda m: recipe(many(), positive_weights=(1, 2)), "positive_weights"),
        (lambda m: recipe(many(), positive_weights=(1, 2, 3), label_smoothing=0.1),
         "positive_weights"),
        (lambda m: train_on([0, 1, 0, 1], many(), batch_size=2),
         "has task='multi_label', the data have 'single_label'; read"),
        (lambda m: train_on([0, 1, 0, 1], m, batch_size=4), "batch_size=4, .* have batch_size=2"),
        (lambda m: train_on(np.eye(4)[:, :3] > 0, m, batch_size=2, one_hot=True),
         "or load the model with task='multi_label'"),
        (lambda m: train_only(m, ["blok_0"]), "'blok_0'; the layers are patch_embedding, "),
        (lambda m: train_last_blocks(m, 3), "The last 3 blocks: the model has 1 block"),
        (lambda m: layer_decay_multipliers(m, 1.5), r"layer_decay=1.5: .* number in \(0, 1"),
        (lambda m: enable_lora(m, 0), "lora_rank must be a positive int, found 0"),
        (lambda m: enable_lora(m, 2, ["query"]), r"\['query'\]: expected some of attention/query"),
        (lambda m: zero_head(tiny(num_classes=0)), "num_classes=0, so no head"),
        (lambda m: LayerwiseAdamW().build(tiny(dtype="bfloat16").weights), "mixed_bfloat16"),
        (lambda m: Resume("absent", np.zeros(3)), "ndarray without .* `epoch`.*from_arrays"),
    ],
)  # fmt: skip
def test_bad_arguments_are_refused_by_name(call, message, tmp_path, monkeypatch):
    """With the values that are allowed."""
    monkeypatch.chdir(tmp_path)
    model = tiny(num_classes=3)
    trainable = len(model.trainable_weights)
    with pytest.raises(ConfigError, match=message):
        call(model)
    assert len(model.trainable_weights) == trainable
    assert not list(tmp_path.iterdir())


def test_unmerged_lora_is_refused_by_presets_and_by_another_lora(tmp_path):
    """A preset file stores kernels alone, so the LoRA matrices would be lost."""
    model = tiny()
    enable_lora(model, 2)
    with pytest.raises(ConfigError, match="adapted already; use merge_lora"):
        enable_lora(model, 2)
    with pytest.raises(CheckpointError, match="merge_lora"):
        model.save_to_preset(tmp_path / "preset")
    assert not (tmp_path / "preset").exists()
    merge_lora(model).save_to_preset(tmp_path / "preset")
