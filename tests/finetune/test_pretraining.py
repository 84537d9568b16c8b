"""`pretrain` trains a model by the name of a recipe, and resumes after a crash."""

import keras
import pytest

from keras_vit import ConfigError, VisionTransformer, cli, evaluate
from keras_vit.data import AUGREG, from_folder
from keras_vit.finetune import PRETRAINING, pretrain
from tests.digits import LOOPS, write_folders

SIZES = {"patch_size": 8, "hidden_size": 16, "mlp_dim": 32, "num_heads": 2, "num_layers": 1}
EPOCHS, STEPS = 3, 4


class Crash(keras.callbacks.Callback):
    """Ends the training in its second epoch, as a crash of the process would."""

    def on_train_batch_end(self, batch, logs=None):
        if self.model.optimizer.iterations == STEPS + 1:
            raise MemoryError("no memory")


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    folder = tmp_path_factory.mktemp("desk")
    write_folders(folder, LOOPS.get, train=8 * STEPS, test=12, size=16)
    return folder


def run(desk, out, **options):
    return pretrain(
        desk / "train",
        "plain_s16_i1k",
        out=out,
        validation=desk / "test",
        image_size=16,
        epochs=EPOCHS,
        batch_size=8,
        fields=SIZES,
        **options,
    )


@pytest.fixture(scope="module")
def unbroken(desk, tmp_path_factory):
    out, plans = tmp_path_factory.mktemp("runs") / "unbroken", []
    return out, run(desk, out, announce=plans.append), plans[0]


def test_the_plan_has_the_fields_and_settings_of_the_published_recipe(unbroken):
    """Model, augmentation, optimizer and length; an epoch is one pass over the data."""
    _, done, plan = unbroken
    published = PRETRAINING["plain_s16_i1k"]
    assert {name: getattr(plan.model.config, name) for name in published.fields} == dict(
        published.fields
    )
    assert plan.data.augmentation == AUGREG["light2"]
    assert (len(plan.data), plan.recipe.settings["steps"]) == (STEPS, EPOCHS * STEPS)
    assert plan.recipe.settings["learning_rate"] == published.learning_rate
    assert plan.recipe.compile_args["optimizer"].weight_decay == published.weight_decay
    assert len(done.history["val_accuracy"]) == EPOCHS


def test_the_saved_preset_has_the_scores_of_the_held_out_images(desk, unbroken):
    """It also has the class names and the recipe's protocol."""
    _, done, _ = unbroken
    model = VisionTransformer.from_preset(done.preset)
    assert model.labels == ("loop", "open")
    assert model.preprocessor.protocol == "big_vision"
    found = evaluate(model, from_folder(desk / "test", model, 8))
    assert (found.count, found.top1) == (done.evaluation.count, done.evaluation.top1)
    assert found.loss == pytest.approx(done.evaluation.loss, rel=1e-5)
    assert done.history["val_loss"][-1] == pytest.approx(found.loss, rel=1e-5)


def test_a_crashed_pretraining_resumes_with_identical_results(desk, unbroken, tmp_path):
    """Weights, history and scores equal those of the uninterrupted training."""
    expected, done, _ = unbroken
    out = tmp_path / "crashed"
    with pytest.raises(MemoryError):
        run(desk, out, callbacks=[Crash()])
    again = run(desk, out, resume=True)
    assert again.history == done.history
    assert again.evaluation == done.evaluation
    weights = "last/model.safetensors"
    assert (out / weights).read_bytes() == (expected / weights).read_bytes()


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ({"recipe": "plain_s16"}, "Did you mean 'plain_s16_i1k'"),
        ({"variant": "vit_b17"}, "Did you mean 'vit_b16'"),
        ({"accumulate": 3, "batch_size": 8}, "batch_size=8 is not divisible by accumulate=3"),
        ({"fields": {"classifier": "token"}}, "has classifier=gap, the model classifier=token"),
    ],
)
def test_bad_arguments_are_refused_by_name(desk, tmp_path, named, message):
    """Before the first step, and before the output folder is made."""
    arguments = {"recipe": "plain_s16_i1k", "image_size": 16, **named}
    with pytest.raises(ConfigError, match=message):
        pretrain(desk / "train", out=tmp_path / "out", **arguments)
    assert not (tmp_path / "out").exists()


@pytest.mark.skipif(keras.backend.backend() != "torch", reason="one command, any backend")
def test_keras_vit_pretrain_trains_scores_and_prints_the_papers_accuracy(desk, tmp_path, capsys):
    """A second run is refused without --resume."""
    out = tmp_path / "out"
    arguments = ["pretrain", desk / "train", "--recipe", "plain_s16_i1k", "--out", out]
    arguments += ["--variant", "vit_ti16", "--image-size", 16, "--patch-size", 8, "--epochs", 1]
    arguments += ["--batch-size", 8, "--learning-rate", 0.002, "--validation", desk / "test"]
    assert cli.main([str(a) for a in arguments]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "arXiv 2205.01580" in printed
    assert "76.5% after 90, 78.5% after 150, 80.0% after 300 epochs" in printed
    assert "On 12 held-out images: top-1" in printed
    assert VisionTransformer.from_preset(out / "last").config.patch_size == (8, 8)
    assert cli.main([str(a) for a in arguments]) == 2
    assert "--resume" in capsys.readouterr().err
    assert cli.main([str(a) for a in (*arguments, "--resume")]) == 0
