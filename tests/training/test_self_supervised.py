"""Training without labels: the loss is that of lightly, and `SelfSupervised` is a Keras model."""

import keras
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from keras_vit import VisionTransformer, pretrain
from keras_vit.data import Views, from_folder
from keras_vit.errors import ConfigError
from keras_vit.evaluation import features
from keras_vit.evaluation.neighbours import effective_rank
from keras_vit.training import PretrainRecipe, SelfSupervised, pretraining
from tests.digits import write_folders
from tests.helpers import (
    assert_close,
    output_and_gradients,
    random_tiny,
    read_weights,
    skip_without_bfloat16,
    tiny,
    to_numpy,
)
from tests.runs import BACKEND, sample

pytestmark = pytest.mark.every_backend

SMALL = {"projector": (16, 16, 8), "directions": 32}
STEPS = 3
"""Batches per epoch."""


class Blind(VisionTransformer):
    """A model with a call of its own, whose outputs are zeros."""

    def call(self, *inputs, **options):
        return 0 * super().call(*inputs, **options)


def make(views=(2, 2), encoder=None, dtype="float32", **options) -> SelfSupervised:
    encoder = encoder or tiny(num_classes=0, image_size=(None, None), dtype=dtype)
    of_sizes = Views(16, 8, global_views=views[0], local_views=views[1])
    return SelfSupervised(encoder, of_sizes, **{**SMALL, **options})


def noisy_views() -> dict[str, np.ndarray]:
    """Views of sixteen images that differ from each other more than their views do."""
    rng = np.random.default_rng(0)
    images = rng.standard_normal((16, 1, 16, 16, 3))
    return {
        name: (images[:, :, :size, :size] + 0.3 * rng.standard_normal((16, 2, size, size, 3)))
        for name, size in (("global_views", 16), ("local_views", 8))
    }


@pytest.mark.parametrize(("images", "views"), [(5, (2, 6)), (8, (4, 0)), (1, (1, 2))])
def test_the_loss_and_its_gradient_are_those_of_lightly(images, views, monkeypatch):
    """In float64 with the same directions, which are the first ones of the seed."""
    torch = pytest.importorskip("torch")
    from tests import torchvision_shim  # noqa: F401

    lightly = pytest.importorskip("lightly.loss.lejepa_loss")
    monkeypatch.setattr(lightly, "_validate_projection_shapes", lambda **views: None)  # (4, 0)
    reference, model = lightly.LeJEPALoss(0.02), make(views, sigreg_weight=0.02)
    drawn = keras.random.normal((8, 32), seed=keras.random.SeedGenerator(0))
    drawn = torch.tensor(keras.ops.convert_to_numpy(drawn), dtype=torch.float64)
    reference.sigreg._generate_unit_vectors = lambda *of: drawn / drawn.norm(dim=0)
    projections = np.random.default_rng(1).normal(0.3, 2, (images, sum(views), 8))
    ours = keras.ops.convert_to_tensor(projections, "float32")

    def loss(projections):
        with keras.StatelessScope():
            return 2 * (model.compute_loss(y_pred=projections),)

    found, gradients = output_and_gradients(loss, [ours])
    theirs = torch.tensor(projections, requires_grad=True)
    parts = theirs.swapaxes(0, 1).split(views)
    expected = reference(global_proj=parts[0], local_proj=parts[1])
    expected.backward()
    assert_close(found, expected.detach().numpy())
    assert_close(gradients[0], theirs.grad.numpy())


CASES = (("float32", None), ("mixed_bfloat16", 2))


@pytest.mark.parametrize(("dtype", "accumulate"), sample(CASES, CASES[1]))
def test_fit_lowers_the_loss_by_all_weights_but_the_frozen_ones(dtype, accumulate):
    """Also in 16 bits, by updates of two batches each; every step has other directions."""
    if dtype != "float32" and keras.backend.backend() == "torch":
        skip_without_bfloat16()
    model = make(dtype=dtype)
    model.encoder.get_layer("patch_embedding").trainable = False
    before, views, how = read_weights(model), noisy_views(), {"batch_size": 8, "verbose": 0}
    optimizer = keras.optimizers.Adam(0.01, gradient_accumulation_steps=accumulate)
    model.compile(optimizer, steps_per_execution=1 if BACKEND == "torch" else accumulate or 1)
    losses = model.fit(views, epochs=10, **how).history["loss"]
    assert losses[-1] < 0.6 * losses[0]
    after = read_weights(model)
    kept = [name for name in before if np.array_equal(before[name], after[name])]
    assert kept == [name for name in before if "patch_embedding" in name]
    one, other = (model.evaluate(views, **how, return_dict=True) for _ in range(2))
    assert one["loss"] == pytest.approx(0.95 * one["invariance"] + 0.05 * one["sigreg"])
    assert one["invariance"] == pytest.approx(other["invariance"])
    assert one["sigreg"] != other["sigreg"]


def test_an_encoder_keeps_its_call_and_its_regularisers():
    """A call that loses the image gives equal projections; the loss has every added term."""
    encoder = Blind(**tiny().config.replace(num_classes=0, image_size=None).to_dict())
    kernel = encoder.get_layer("patch_embedding").kernel
    kernel.regularizer = keras.regularizers.L2(2.0)
    model = make(encoder=encoder)
    model.compile()
    scores = model.evaluate(noisy_views(), verbose=0, return_dict=True)
    penalty = 2 * np.square(to_numpy(kernel)).sum()
    assert scores["loss"] == pytest.approx(penalty + 0.05 * scores["sigreg"], rel=1e-5)


@pytest.mark.on_backend("torch")
def test_a_saved_model_projects_alike(tmp_path):
    """Projections are float32 `(images, views, units)`, those of global views first."""
    views, options = noisy_views(), {"projector": (8,), "sigreg_weight": 0.1, "seed": 3}
    model = make(dtype="mixed_float16", **options)
    expected = model.predict(views, verbose=0)
    assert (expected.shape, expected.dtype) == ((16, 4, 8), "float32")
    model.save(tmp_path / "x.keras")
    loaded = keras.models.load_model(tmp_path / "x.keras")
    assert (loaded.settings, loaded.views) == (model.settings, model.views)
    assert_array_equal(loaded.predict(views, verbose=0), expected)
    views["local_views"] = views["local_views"][::-1]
    assert_array_equal(loaded.predict(views, verbose=0)[:, :2], expected[:, :2])


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    """A folder with digits as PNG files, and a small preset with dropout."""
    folder = tmp_path_factory.mktemp("desk")
    write_folders(folder, train=24, test=12, size=16)
    random_tiny(channels=1, num_classes=0, dropout_rate=0.1).save_to_preset(folder / "tiny")
    return folder


def run(desk, out, resume=False, **settings) -> dict:
    """The history of a training by updates of two batches of eight images."""
    usual = {"accumulate": 2, "steps_per_epoch": STEPS, "learning_rate": 0.01, **SMALL}
    recipe = PretrainRecipe(settings.pop("steps", 4), 16, **{**usual, **settings})
    how = {"source": desk / "tiny", "labels": desk / "test", "recipe": recipe}
    return pretrain(desk / "train", path=out, resume=resume, **how).history


MOMENTS = {
    "the first step": ("on_train_batch_end", 0, 0),
    "the middle of an epoch": ("on_train_batch_end", 1, 1),
    "the end of an epoch": ("on_epoch_end", 1, 1),
    "after the state was saved": ("on_train_batch_begin", 2, 0),
    "the last step": ("on_train_batch_end", 2, STEPS - 1),
}
"""Call of a callback, its epoch, and its argument, the batch or the epoch."""


def test_a_training_that_stops_again_and_again_ends_like_the_unbroken_one(
    desk, tmp_path, monkeypatch
):
    """Log, preset and history are equal bit by bit; the preset is the encoder that was measured."""
    history = run(desk, tmp_path / "unbroken")
    assert len(history["knn_accuracy"]) == 3
    for hook, *moment in sample(MOMENTS.values(), MOMENTS["the end of an epoch"]):
        with monkeypatch.context() as patch:
            own = getattr(pretraining._Meter, hook)

            def stop(meter, number, *rest, own=own, moment=moment, **logs):
                own(meter, number, *rest, **logs)
                if [meter._epoch, number] == moment:
                    raise MemoryError

            patch.setattr(pretraining._Meter, hook, stop)
            with pytest.raises(MemoryError):
                run(desk, tmp_path / "stopped", resume=True)
    assert run(desk, tmp_path / "stopped", resume=True) == history
    for file in ("log.csv", "last/model.safetensors", "last/config.json"):
        found, expected = ((tmp_path / out / file).read_bytes() for out in ("stopped", "unbroken"))
        assert found == expected
    model = VisionTransformer.from_preset(tmp_path / "stopped" / "last")
    assert model.provenance["history"]["rank"] == pytest.approx(history["rank"], rel=1e-4)
    rank = effective_rank(features(model, from_folder(desk / "test", model)).values)
    assert rank == pytest.approx(history["rank"][-1], rel=1e-5)


@pytest.mark.on_backend("torch")
def test_a_training_whose_numbers_overflow_names_epoch_and_saved_encoder(desk, tmp_path):
    """The rate of the first update of a warm-up is 0, so that its encoder is the source."""
    once = {"accumulate": 1, "learning_rate": 1e9, "weight_decay": 1e30}
    with pytest.raises(ConfigError, match=r"The loss is nan in step 2 of epoch 1\. Try a lower"):
        run(desk, tmp_path / "in the first", **once, steps=8, steps_per_epoch=8)
    words = r"After epoch 2: .* not finite.*last has the encoder of epoch 1\. Try a lower"
    with pytest.raises(ConfigError, match=words):
        run(desk, tmp_path / "x", **once, steps_per_epoch=1, warmup_steps=1)
    saved = tmp_path / "x" / "last" / "model.safetensors"
    assert saved.read_bytes() == (desk / "tiny" / "model.safetensors").read_bytes()


@pytest.mark.on_backend("torch")
def test_a_collapse_is_named(desk, tmp_path):
    """Without SIGReg the loss is least if the projections of all images are equal."""
    settings = {"learning_rate": 0.03, "sigreg_weight": 0.0, "accumulate": 1}
    with pytest.warns(UserWarning, match=r"rank is .* and sigreg is 6\.\d+, compared with 6\.4"):
        run(desk, tmp_path / "x", **settings, steps=20, steps_per_epoch=10)
