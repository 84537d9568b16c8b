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

MODELS = {
    "token, any size": {"image_size": None, "position_grid": (2, 2), "num_layers": 2},
    "map": {"pool": {"kind": "map_of_patches"}},
    "hybrid, registers": {
        **HYBRID,
        "image_size": (24, 16),
        "pool": {"kind": "token_and_mean"},
        "tokens": {"registers": 2},
    },
    "gap, channels first": {
        "pool": {"kind": "gap"},
        "tokens": {"class_tokens": 0},
        "data_format": "channels_first",
        "image_size": (16, 24),
    },
}
"""Models that together cover the features on which the reading of a map depends."""
MORE = {
    "plain": {"num_layers": 2},
    "probe of all": {"pool": {"kind": "map"}, "tokens": {"class_tokens": 0, "registers": 1}},
    "distilled": {
        "pool": {"kind": "token_and_distillation"},
        "tokens": {"distillation": True},
    },
    "mean of all": {"pool": {"kind": "mean"}},
    "class tokens": {"pool": {"kind": "tokens"}, "tokens": {"class_tokens": 2}},
}
"""Further models, for torch alone, because the backends do not differ for them."""
ON_TORCH = keras.backend.backend() == "torch"
# The backends do not differ in it.
not_by_backend = pytest.mark.on_backend("torch")


def made(fields, count=2):
    """A model, a batch for it, and the reference for the classes 3 and 1."""
    model = random_tiny(**fields)
    height, width = model.config.image_size or (24, 16)
    shape = (height, width, 3) if model.data_format == "channels_last" else (3, height, width)
    images = 0.5 * normal(count, *shape)
    return model, images, Reference(model, images, [3, 1][:count])


@pytest.fixture(scope="module", params=[*MODELS, *(MORE if ON_TORCH else ())])
def case(request):
    return made({**MODELS, **MORE}[request.param])


def test_relevance_equals_the_reference(case):
    """Gradient times attention through all blocks, combined as the head combines tokens."""
    model, images, reference = case
    result = explain(model, images, np.array([3, 1]), prepared=True)
    assert_close(result.patches.reshape(2, -1), reference.relevance())
    assert result.maps.shape == (2, *images_size(model, images))
    assert result.classes.tolist() == [3, 1]


def test_gradcam_equals_the_reference(case):
    """The tokens that enter the first block, weighted by their mean gradient."""
    model, images, reference = case
    result = explain(
        model, images, np.array([3, 1]), "gradcam", stage="block_0/input", prepared=True
    )
    assert_close(result.patches.reshape(2, -1), reference.gradcam(0))


def images_size(model, images):
    return images.shape[1:3] if model.data_format == "channels_last" else images.shape[2:]


@pytest.mark.parametrize("name", ["map", "gap, channels first"])
def test_integrated_gradients_equal_the_reference(name):
    """From a black image to the image, summed over channels; patches sum their pixels."""
    model, images, reference = made(MODELS[name])
    result = explain(
        model, images, np.array([3, 1]), "integrated_gradients", steps=3, prepared=True
    )
    expected = reference.integrated_gradients(-1, 3)
    assert_close(result.maps, expected)
    assert_close(result.patches.sum((1, 2)), expected.sum((1, 2)), 1e-4)


@not_by_backend
def test_integrated_gradients_of_a_hybrid_sum_to_the_rise_of_the_score():
    """The completeness axiom, relative to the baseline."""
    model, images, _ = made(MODELS["hybrid, registers"], count=1)
    start = 0.5 * normal(24, 16, 3, seed=5)  # unequal pixels, for which max pooling has no ties
    images = start + 0.1 * images
    options = {"steps": 200, "baseline": start}
    result = explain(model, images, 3, "integrated_gradients", **options, prepared=True)
    high, low = (model.predict(x, verbose=0)[0, 3] for x in (images, start[None]))
    np.testing.assert_allclose(result.maps.sum(), high - low, rtol=3e-2)


@pytest.mark.parametrize("name", ["token, any size", "gap, channels first"])
def test_occlusion_is_the_fall_of_the_score_for_each_black_square(name):
    """Squares of 8 pixels."""
    model, images, _ = made(MODELS[name])
    result = explain(model, images, np.array([3, 1]), "occlusion", prepared=True)
    height, width = images_size(model, images)
    whole = model.predict(images, verbose=0)
    for r in range(height // 8):
        for c in range(width // 8):
            covered = images.copy()
            last = model.data_format == "channels_last"
            view = covered if last else np.moveaxis(covered, 1, -1)
            view[:, 8 * r : 8 * r + 8, 8 * c : 8 * c + 8] = -1
            fall = (whole - model.predict(covered, verbose=0))[[0, 1], [3, 1]]
            assert_close(result.patches[:, r, c], fall, 1e-4)


@pytest.mark.parametrize("name", MODELS if ON_TORCH else ["map"])
def test_attention_and_rollout_equal_their_definitions(name):
    """From the tokens that the head reads, through one block and head, or through all blocks."""
    model, images, _ = made(MODELS[name])
    maps, reads = (
        attention_maps(model, images, prepared=True),
        read_tokens(model, images, prepared=True),
    )
    skip = model.config.num_prefix_tokens
    result = explain(model, images, method="attention", stage=[*maps][-1], head=1, prepared=True)
    last = np.einsum("bt,btk->bk", reads, [*maps.values()][-1][:, 1])
    assert_close(result.patches.reshape(2, -1), last[:, skip:])
    assert result.classes is None
    result = explain(model, images, method="rollout", prepared=True)
    product = np.eye(maps["block_0/attention"].shape[-1])
    for weights in maps.values():
        weights = weights.mean(1) + np.eye(weights.shape[-1])
        product = (weights / weights.sum(-1, keepdims=True)) @ product
    expected = np.einsum("bt,btk->bk", reads, product)[:, skip:]
    assert_close(result.patches.reshape(2, -1), expected / expected.sum(1, keepdims=True))


@not_by_backend
def test_attention_of_a_map_head_is_that_of_its_probe():
    """If no block is given."""
    model, images, reference = made(MODELS["map"])
    reference.encoder(reference.z)
    probe = reference.attention[-1].detach().numpy()[:, :, 0]
    result = explain(model, images, method="attention", prepared=True)
    assert_close(result.patches.reshape(2, -1), probe.mean(1))
    result = explain(model, images, method="attention", head=1, prepared=True)
    assert_close(result.patches.reshape(2, -1), probe[:, 1])


@not_by_backend
def test_the_batch_size_does_not_change_the_maps():
    """Also with a smaller last batch."""
    model, images, _ = made({"num_layers": 1})
    images = np.concatenate([images, images[::-1], images[:1]])
    whole, parts = (
        explain(model, images, 2, batch_size=size, prepared=True).maps for size in (5, 2)
    )
    np.testing.assert_allclose(whole, parts, atol=1e-6)


@not_by_backend
def test_a_target_is_an_index_a_label_or_the_prediction():
    """A label may be given by one of its names; digits are an index unless a label has them."""
    labels = ("tench, Tinca tinca", "crane", "crane", "7", "cat")
    model, images = random_tiny(class_names=labels), normal(2, 16, 16, 3)
    for target, index in ((4, 4), ("cat", 4), ("Tinca tinca", 0), ("7", 3), ("2", 2)):
        assert explain(model, images, target, prepared=True).classes.tolist() == [index] * 2
    predicted = model.predict(images, verbose=0).argmax(-1)
    np.testing.assert_array_equal(explain(model, images, prepared=True).classes, predicted)


@not_by_backend
def test_a_pixel_has_the_value_of_its_patch():
    """The map is not interpolated; pixels that fill no patch have the value zero."""
    model = random_tiny(image_size=None, position_grid=(2, 2))
    result = explain(model, normal(1, 19, 16, 3), 0, prepared=True)
    np.testing.assert_array_equal(result.maps[0, :16], result.patches[0].repeat(8, 0).repeat(8, 1))
    assert not result.maps[0, 16:].any()


@not_by_backend
def test_the_baselines_random_and_centre():
    """Random maps follow their seed; the map "centre" is highest in the middle."""
    model, images = random_tiny(image_size=40), normal(2, 40, 40, 3)
    one, same, other = (
        explain(model, images, method="random", seed=s, prepared=True).patches for s in (1, 1, 2)
    )
    np.testing.assert_array_equal(one, same)
    assert not np.allclose(one, other)
    centre = explain(model, images, method="centre", prepared=True).patches[0]
    assert np.unravel_index(centre.argmax(), (5, 5)) == (2, 2)
    np.testing.assert_allclose(centre, centre[::-1, ::-1], atol=1e-6)


@not_by_backend
def test_a_model_of_features_has_attention_and_no_classes():
    """Attention and rollout need no class; the message of the other methods names num_classes."""
    model, images = random_tiny(num_classes=0), normal(1, 16, 16, 3)
    assert explain(model, images, method="rollout", prepared=True).classes is None
    with pytest.raises(ConfigError, match=r"one prediction per image; .* num_classes=0"):
        explain(model, images, prepared=True)


def test_an_attention_layer_of_the_user_is_explained():
    """A changed layer changes the map; a layer without attention weights is refused."""
    model, images = random_tiny(), normal(1, 16, 16, 3)
    before = explain(model, images, 0, prepared=True).maps
    attention = model.get_layer("block_0").attention

    class Doubled(type(attention)):
        def call(self, inputs, **options):
            return 2 * super().call(inputs, **options)

    attention.__class__ = Doubled
    after = explain(model, images, 0, prepared=True).maps
    assert not np.allclose(before, after)
    type(attention).call = lambda self, inputs, **options: inputs
    with pytest.raises(ConfigError, match="block_0 computed no attention weights"):
        explain(model, images, 0, prepared=True)


@pytest.mark.on_backend("jax")
@pytest.mark.parametrize("method", ["relevance", "integrated_gradients"])
def test_a_fit_in_another_thread_does_not_disturb_an_explanation(method):
    """Its first step has taken the weights out of the model, and the map reads their new values."""
    model, pauses, images = random_tiny(), Pauses(), 0.1 * normal(2, 16, 16, 3)
    model.compile(keras.optimizers.SGD(0.1), "auto")
    before = explain(model, images, 0, method, prepared=True).maps
    fit = {"verbose": 0, "callbacks": [pauses]}
    training = Thread(target=lambda: model.fit(images, np.arange(2), **fit))
    training.start()
    try:
        assert pauses.reached.wait(60)
        during = explain(model, images, 0, method, prepared=True).maps
    finally:
        pauses.go_on.set()
    training.join()
    assert np.abs(during - before).max() > 0
    assert_close(during, explain(model, images, 0, method, prepared=True).maps)


@pytest.mark.parametrize("method", ["relevance", "gradcam", "rollout"])
def test_a_call_of_the_user_without_stages_is_refused_by_its_name(method):
    class Doubled(keras_vit.VisionTransformer):
        def call(self, inputs, training=None):
            return 2 * super().call(inputs, training=training)

    model = Doubled(random_tiny(num_layers=1).config)
    with pytest.raises(ConfigError, match="Doubled.call takes no `stages`"):
        explain(model, normal(1, 16, 16, 3), 0, method, prepared=True)


@not_by_backend
def test_maps_under_mixed_precision_are_float32():
    """Within 10 % of the maps of a float32 model."""
    model = random_tiny(num_layers=2)
    half = keras_vit.VisionTransformer(model.config, dtype="mixed_bfloat16")
    half.set_weights(model.get_weights())
    images = normal(2, 16, 16, 3)
    whole, mixed = (explain(m, images, 1, prepared=True).patches for m in (model, half))
    assert mixed.dtype == np.float32
    assert_close(mixed, whole, 0.1)


def refused(message, model=None, images=None, **arguments):
    model = model or random_tiny(class_names=tuple("abcde"))
    images = normal(1, 16, 16, 3) if images is None else images
    with pytest.raises(ConfigError, match=message):
        explain(model, images, **arguments, prepared=True)


@not_by_backend
def test_bad_arguments_of_explain_are_refused():
    """The message names the argument and the values allowed."""
    model = random_tiny(class_names=("crane", "crane", "dog", "x", "y"))
    refused("target=9 is no class: the model has 5, from 0 to 4", model, target=9)
    refused("target=-1 is no class", model, target=-1)
    refused("'dig' is no label of the model. Did you mean 'dog'", model, target="dig")
    refused("'crane' names the classes 0, 1. Give one of these numbers", model, target="crane")
    refused("expected an index, a label or None", model, target=1.5)
    refused("one class for each image", model, target=np.array([1, 2]))
    refused("expected an index, a label or None", model, target=["x"])
    refused("is not one of attention", model, method="relevence")
    refused("has no option 'head'; it has none", model, head=1)
    for head in (2, "a", -1, 0.5):
        refused(
            f"head={head!r}: there is no such head; block_0/attention has 2",
            model,
            method="attention",
            head=head,
        )
    refused("steps must be a positive int, found 0", model, method="integrated_gradients", steps=0)
    refused("baseline has the shape", model, method="occlusion", baseline=np.zeros((3, 5, 3)))
    refused(
        "'occlusion' has no option 'window'; it has baseline", model, method="occlusion", window=3
    )
    refused("four axes: model.preprocessor", model, images=np.zeros((16, 16, 3)))


def test_a_weight_that_is_not_finite_is_refused_by_name():
    """The first weight with NaN is named."""
    model = random_tiny()
    kernel = model.get_layer("block_0").mlp.weights[0]
    kernel.assign(np.full(kernel.shape, np.nan))
    refused(r"gave NaN: the weight .*block_0/mlp.* is not finite", model, target=0)


@not_by_backend
@pytest.mark.usefixtures("nothing_frozen")
def test_a_quantised_model_has_attention_and_no_gradients():
    """Methods that need gradients are refused."""
    model = random_tiny()
    model.quantize("int8")
    refused("needs gradients, and the quantised block_0/.* has none", model, target=0)
    assert np.isfinite(
        explain(model, normal(1, 16, 16, 3), method="rollout", prepared=True).maps
    ).all()
