"""`explain`: maps of the evidence for a class, against an independent model in torch."""

from threading import Thread

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit import explain
from keras_vit.errors import ConfigError
from keras_vit.explanation import attention_maps, read_tokens
from tests.explanation.reference import Reference
from tests.helpers import assert_close, random_tiny
from tests.models.inference.test_inference import Pauses
from tests.plain import HYBRID, normal


def pooled(kind, *tokens, **fields):
    return {"pool": {"kind": kind}, "tokens": dict(tokens), **fields}


NO_CLASS = ("class_tokens", 0)
MODELS = {
    "map": pooled("map_of_patches"),
    "token, any size": pooled("token", image_size=None, position_grid=(2, 2), num_layers=2),
    "hybrid": pooled("token_and_mean", ("registers", 2), image_size=(24, 16), **HYBRID),
    "gap": pooled("gap", NO_CLASS, data_format="channels_first", image_size=(16, 24)),
    "probe of all": pooled("map", NO_CLASS, ("registers", 1)),
    "mean of all": pooled("mean"),
}
"""Models that together cover what the reading of a map depends on."""
# One model for each backend's gradients; torch runs all.
EACH = [pytest.param("map", marks=pytest.mark.every_backend), *list(MODELS)[1:]]
CLASSES = np.array([3, 1, 3])


def made(name, count=3):
    """A model, a batch for it, and the reference for the classes. Some pixels may fill no patch."""
    model = random_tiny(**MODELS[name])
    height, width = model.config.image_size or (27, 16)
    shape = (height, width, 3) if model.data_format == "channels_last" else (3, height, width)
    images = 0.5 * normal(count, *shape)
    return model, images, Reference(model, images, CLASSES[:count].tolist())


def mapped(model, images, *arguments, **options):
    """The patches of a map, `(batch, patches)`."""
    result = explain(model, images, *arguments, **options, prepared=True)
    return result.patches.reshape(len(images), -1)


def rows_first(model, images):
    return images if model.data_format == "channels_last" else np.moveaxis(images, 1, -1)


@pytest.mark.parametrize("name", EACH)
def test_gradients_equal_the_reference(name):
    """Relevance is gradient times attention through all blocks, combined as the head combines
    tokens; Grad-CAM weighs the tokens that enter a block by their mean gradient; integrated
    gradients, from a baseline or black, are summed over channels, and patches sum pixels.
    A map is not interpolated, zero outside the patches, and does not depend on the batch size."""
    model, images, reference = made(name)
    result = explain(model, images, CLASSES, batch_size=2, prepared=True)
    assert_close(result.patches.reshape(3, -1), reference.relevance())
    whole = np.zeros(rows_first(model, images).shape[:3], "float32")
    pixels = result.patches.repeat(8, 1).repeat(8, 2)
    whole[:, : pixels.shape[1], : pixels.shape[2]] = pixels
    np.testing.assert_array_equal(result.maps, whole)
    assert result.classes.tolist() == CLASSES.tolist()
    found = mapped(model, images, CLASSES, "gradcam", stage="block_0/input")
    assert_close(found, reference.gradcam(0).reshape(3, -1))
    if name in ("map", "gap"):
        options = {"baseline": normal(16, 16, 3, seed=5)} if name == "map" else {}
        options |= {"steps": 3, "prepared": True}
        result = explain(model, images, CLASSES, "integrated_gradients", **options)
        expected = reference.integrated_gradients(options.get("baseline", -1), 3)
        assert_close(result.maps, expected)
        assert_close(result.patches.sum((1, 2)), expected.sum((1, 2)), 1e-4)


@pytest.mark.parametrize("name", ["token, any size", "gap"])
def test_occlusion_is_the_fall_of_the_score_for_each_black_square(name):
    """Squares of 8 pixels."""
    model, images, _ = made(name)
    result = explain(model, images, CLASSES, "occlusion", prepared=True)
    whole = model.predict(images, verbose=0)
    for r, c in np.ndindex(result.patches.shape[1:]):
        covered = images.copy()
        rows_first(model, covered)[:, 8 * r : 8 * r + 8, 8 * c : 8 * c + 8] = -1
        fall = (whole - model.predict(covered, verbose=0))[range(3), CLASSES]
        assert_close(result.patches[:, r, c], fall, 1e-4)


@pytest.mark.parametrize("name", [EACH[0], *list(MODELS)[1:4]])
def test_attention_and_rollout_equal_their_definitions(name):
    """From the tokens that the head reads, through one block and head, or through all blocks; of
    attention pooling, the weights of its probe unless a block is given."""
    model, images, reference = made(name)
    maps = attention_maps(model, images, prepared=True)
    reads = read_tokens(model, images, prepared=True)
    skip = model.config.num_prefix_tokens
    *_, last = maps
    expected = np.einsum("bt,btk->bk", reads, maps[last][:, 1])[:, skip:]
    assert_close(mapped(model, images, method="attention", stage=last, head=1), expected)
    product = np.eye(maps["block_0/attention"].shape[-1])
    for weights in maps.values():
        weights = weights.mean(1) + np.eye(weights.shape[-1])
        product = (weights / weights.sum(-1, keepdims=True)) @ product
    expected = np.einsum("bt,btk->bk", reads, product)[:, skip:]
    found = mapped(model, images, method="rollout")
    assert_close(found, expected / expected.sum(1, keepdims=True))
    if name == "map":
        reference.encoder(reference.z)
        probe = reference.attention[-1].detach().numpy()[:, :, 0]
        assert_close(mapped(model, images, method="attention"), probe.mean(1))
        assert_close(mapped(model, images, method="attention", head=1), probe[:, 1])


def test_a_target_is_an_index_a_label_or_the_prediction():
    """A label may be given by one of its names; digits are an index unless a label has them."""
    labels = ("tench, Tinca tinca", "crane", "crane", "7", "cat")
    model, images = random_tiny(class_names=labels), normal(2, 16, 16, 3)
    for target, index in ((4, 4), ("cat", 4), ("Tinca tinca", 0), ("7", 3), ("2", 2)):
        assert explain(model, images, target, prepared=True).classes.tolist() == [index] * 2
    predicted = model.predict(images, verbose=0).argmax(-1)
    np.testing.assert_array_equal(explain(model, images, prepared=True).classes, predicted)


def test_random_maps_follow_their_seed_and_the_centre_is_highest_in_the_middle():
    model, images = random_tiny(image_size=40), normal(2, 40, 40, 3)
    one, same, other = (mapped(model, images, method="random", seed=s) for s in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert not np.allclose(one, other)
    assert mapped(model, images, method="centre")[0].argmax() == 12


def test_an_attention_layer_of_the_user_is_explained():
    """A changed layer changes the map; a layer without attention weights is refused."""
    model, images = random_tiny(), normal(1, 16, 16, 3)
    before = mapped(model, images, 0)
    attention = model.get_layer("block_0").attention

    class Doubled(type(attention)):
        def call(self, inputs, **options):
            return 2 * super().call(inputs, **options)

    attention.__class__ = Doubled
    assert not np.allclose(before, mapped(model, images, 0))
    type(attention).call = lambda self, inputs, **options: inputs
    with pytest.raises(ConfigError, match="attention weights of block_0"):
        mapped(model, images, 0)


@pytest.mark.on_backend("jax")
@pytest.mark.parametrize("method", ["relevance", "integrated_gradients"])
def test_a_fit_in_another_thread_does_not_disturb_an_explanation(method):
    """Its first step has taken the weights out of the model, and the map reads their new values."""
    model, pauses, images = random_tiny(), Pauses(), 0.1 * normal(2, 16, 16, 3)
    model.compile(keras.optimizers.SGD(0.1), "auto")
    before = mapped(model, images, 0, method)
    options = {"verbose": 0, "callbacks": [pauses]}
    fit = Thread(target=lambda: model.fit(images, np.arange(2), **options))
    fit.start()
    assert pauses.reached.wait(60)
    during = mapped(model, images, 0, method)
    pauses.go_on.set()
    fit.join()
    assert np.abs(during - before).max() > 0
    assert_close(during, mapped(model, images, 0, method))


def test_maps_under_mixed_precision_are_float32():
    """Within 10 % of the maps of a float32 model."""
    model, images = random_tiny(num_layers=2), normal(2, 16, 16, 3)
    half = keras_vit.VisionTransformer(model.config, dtype="mixed_bfloat16")
    half.set_weights(model.get_weights())
    whole, mixed = (mapped(m, images, 1) for m in (model, half))
    assert mixed.dtype == np.float32
    assert_close(mixed, whole, 0.1)


@pytest.mark.usefixtures("nothing_frozen")
def test_a_quantised_model_has_attention_and_no_gradients():
    """Methods that need gradients are refused; attention needs no class either."""
    model, images = random_tiny(num_classes=0), normal(1, 16, 16, 3)
    model.quantize("int8")
    result = explain(model, images, method="rollout", prepared=True)
    assert np.isfinite(result.maps).all() and result.classes is None
    with pytest.raises(
        ConfigError, match=r"needs gradients, and the quantised block_0/.* has none"
    ):
        mapped(model, images, 0)
