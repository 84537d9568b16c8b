"""Models with dense heads: their maps at every size, in files and presets, and their losses."""

import keras
import numpy as np
import pytest
from scipy.optimize import approx_fprime
from scipy.special import log_softmax

from keras_vit import VisionTransformer
from keras_vit.config import DenseHead
from keras_vit.config.weights import lexicon
from keras_vit.models.dense_losses import ScaleInvariantLogLoss, choose_loss
from tests.families import NO_CLASS_TOKEN, images_for
from tests.helpers import assert_close, output_and_gradients, randomise, run, tiny, to_numpy
from tests.layers.test_dense_map import resized
from tests.plain import HYBRID, ROUNDING, normal
from tests.runs import BACKEND, sample

SMALL = {"head": "dpt", "widths": (2, 3, 4, 5), "fusion_size": 4, "depth_size": 3}
NORMS = {"batch_norm": True, "residual_bias": False}
HEADS = {
    "linear": {"num_outputs": 3, "stages": (1, 3), "class_names": ("sky", "road", "tree")},
    "linear depth": {"task": "depth"},
    "dpt": {"num_outputs": 3, "readout": "project", "doubles": True, **NORMS, **SMALL},
    "dpt depth": {"task": "depth", "output": "sigmoid", "max_depth": 20, "readout": "add", **SMALL},
}
every_head = pytest.mark.parametrize("kind", sample(HEADS, "linear depth", "dpt"))


def dense(kind, **fields):
    """A small model of four blocks with random weights, the same each time, and a dense head."""
    return randomise(tiny(**{**fields, "num_layers": 4}).with_dense_head(**HEADS[kind]))


@pytest.mark.every_backend
@every_head
def test_maps_of_any_size_are_those_of_a_fixed_size(kind):
    """By every way to call a model; pixels that fill no patch have the values beside them."""
    model = dense(kind, image_size=(None, None), position_grid=(2, 2))
    # Without jit_compile, the graph on TensorFlow has unknown sizes; on JAX it never has.
    model.compile(jit_compile=BACKEND == "jax")
    for height, width in ((16, 24), (21, 19)):
        images = normal(2, height, width, 3)
        fixed = dense(kind, image_size=(height, width), position_grid=(2, 2))
        expected = run(fixed, images)
        outputs = (3,) if fixed.task == "segmentation" else ()
        assert (None, *expected.shape[1:]) == (None, height, width, *outputs) == fixed.output_shape
        assert np.ptp(expected[0], axis=(0, 1)).all()
        for found in (model(images), model.predict_on_batch(images)):
            assert_close(found, expected)
        # A map of more pixels than the image has a last value of its own.
        rows, columns = (side // 8 * 8 + HEADS[kind].get("doubles", 0) for side in (height, width))
        whole = expected[:, :rows, :columns]
        pads = [(0, b - a) for a, b in zip(whole.shape, expected.shape, strict=True)]
        assert_close(expected, np.pad(whole, pads, mode="edge"))


ENCODERS = {
    "linear": {**NO_CLASS_TOKEN, "pool": {"kind": "gap", "norm": "after"}},
    "dpt depth": {**HYBRID, "data_format": "channels_first"},
}


@pytest.mark.every_backend
@every_head
def test_files_and_presets_restore_a_dense_head(kind, tmp_path):
    """Its weights have the names and shapes that the configuration states."""
    model = dense(kind, **ENCODERS.get(kind, {}))
    stated = {weight.path: weight.shape for weight in lexicon.weights(model.config)}
    assert stated == {weight.path: tuple(weight.shape) for weight in model.weights}
    assert lexicon.num_parameters(model.config) == model.count_params()
    model.save(tmp_path / "model.keras")
    model.save_to_preset(tmp_path / "preset")
    preset = VisionTransformer.from_preset(tmp_path / "preset", data_format=model.data_format)
    for each in (keras.saving.load_model(tmp_path / "model.keras"), preset):
        assert (each.config, each.prediction) == (model.config, model.prediction)
        assert each.class_names == model.class_names
        images = images_for(model)
        np.testing.assert_array_equal(to_numpy(each(images)), to_numpy(model(images)))


@pytest.mark.every_backend
@every_head
def test_mixed_precision_only_rounds_a_map(kind):
    """The map is float32, also for models that read its type before the call."""
    model, images = dense(kind, dtype="mixed_bfloat16"), normal(2, 16, 16, 3)
    found = model.predict(images, verbose=0)
    assert found.dtype == model.output.dtype == "float32"
    assert_close(found, run(dense(kind), images), 3 * ROUNDING["mixed_bfloat16"])


def scale_invariant_log(true, predicted, weights):
    """Eq. 4 of Eigen et al. for images with weights of pixels; an image weighs their mean."""
    losses = []
    for t, p, w in zip(true, predicted, weights, strict=True):
        has_value = np.nan_to_num(t) > 0
        if has_value.any():
            d, w = np.log(p / np.where(has_value, t, 1))[has_value], w[has_value]
            mean, of_squares = (np.average(power, weights=w) for power in (d, d * d))
            losses.append(w.mean() * (of_squares - 0.5 * mean * mean))
    return np.mean(losses)


def crossentropy(labels, logits, weights):
    """The mean over the pixels that count."""
    counts = labels != 255
    logs = (log_softmax(logits, axis=-1) * (labels[..., None] == np.arange(3))).sum(axis=-1)
    return -(weights * logs)[counts].mean()


def targets(task, *shape):
    """Masks of three classes or depths; pixels in the first row, and the last image, lack both."""
    rng = np.random.default_rng(1)
    if task == "segmentation":
        made = rng.integers(0, 3, shape, "int32")
    else:
        made = rng.uniform(0.5, 20, shape).astype("float32")
        made[:, 0, 1] = np.nan
    made[:, 0, ::2] = made[-1] = 255 if task == "segmentation" else 0
    return made


FORMULAS = {"segmentation": crossentropy, "depth": scale_invariant_log}
OF_IMAGES, OF_PIXELS = np.array([1.0, 2.5, 0.5]), np.arange(18.0).reshape(3, 2, 3)
WEIGHTS = [(None, 1), (OF_IMAGES, OF_IMAGES[:, None, None]), (OF_PIXELS, OF_PIXELS)]
every_task = pytest.mark.parametrize("task", FORMULAS)


@pytest.mark.every_backend
@every_task
@pytest.mark.parametrize(("weights", "of_pixels"), WEIGHTS, ids=("equal", "images", "pixels"))
def test_losses_and_their_gradients_are_those_of_the_formulas(task, weights, of_pixels):
    """Pixels that do not count have a gradient of exactly zero; without others, the loss is 0."""
    true, is_mask = targets(task, 3, 2, 3), task == "segmentation"
    maps = np.exp(normal(3, 2, 3, *((3,) if is_mask else ())))
    head = DenseHead(stages=(0,), output="logits" if is_mask else "exp")
    loss = keras.losses.deserialize(keras.losses.serialize(choose_loss(head, from_logits=True)))

    def by_formula(flat):
        weighed = np.broadcast_to(of_pixels, true.shape)
        return FORMULAS[task](true, flat.reshape(maps.shape), weighed)

    def by_loss(maps):
        return loss(true, maps, weights), maps

    tensors, flat = [keras.ops.convert_to_tensor(maps)], maps.astype("float64").ravel()
    _, (gradient,) = output_and_gradients(by_loss, tensors)
    gradient, is_blank = to_numpy(gradient), true == 255 if is_mask else ~(true > 0)
    assert float(loss(true, maps, weights)) == pytest.approx(by_formula(flat), rel=1e-5)
    assert_close(gradient, approx_fprime(flat, by_formula, 1e-7).reshape(maps.shape), 1e-4)
    assert not gradient[is_blank].any()
    true = np.broadcast_to(true[-1:], true.shape)
    _, (gradient,) = output_and_gradients(by_loss, tensors)
    assert not to_numpy(gradient).any() and float(loss(true, maps, weights)) == 0


def score(task, true, maps, weights, prefix=""):
    """The metrics of maps by NumPy."""
    if task == "depth":
        t, p, w = (each[true > 0] for each in (true, maps, weights))
        rmse = np.sqrt(np.average((t - p) ** 2, weights=w))
        within = np.average(abs(np.log(t / p)) < np.log(1.25), weights=w)
        return {f"{prefix}rmse": rmse, f"{prefix}within_1.25": within}
    w, chosen = weights * (true != 255), maps.argmax(axis=-1)
    pairs = [(true == k, chosen == k) for k in range(3)]
    return {f"{prefix}mean_iou": np.mean([w[a & b].sum() / w[a | b].sum() for a, b in pairs])}


@pytest.mark.every_backend
@every_task
def test_auto_reports_loss_and_metrics_over_batches_also_in_a_file(task, tmp_path):
    """With weights of images, which `weighted_metrics` count."""
    model, images = dense("linear" if task == "segmentation" else "dpt depth"), normal(4, 16, 16, 3)
    true, weights = targets(task, 4, 16, 16), np.array([1.0, 2.0, 4.0, 0.5])
    maps, of_pixels = run(model, images), np.broadcast_to(weights[:, None, None], true.shape)
    batches = [FORMULAS[task](true[b], maps[b], of_pixels[b]) for b in (slice(2), slice(2, 4))]
    expected = {"loss": np.mean(batches), **score(task, true, maps, np.ones(true.shape))}
    expected |= score(task, true, maps, of_pixels, "weighted_")
    model.compile("sgd", "auto", metrics="auto", weighted_metrics="auto")
    model.save(tmp_path / "x.keras")
    for each in (model, keras.saving.load_model(tmp_path / "x.keras")):
        options = {"sample_weight": weights, "batch_size": 2, "verbose": 0, "return_dict": True}
        assert each.evaluate(images, true, **options) == pytest.approx(expected, rel=1e-4)


def test_the_optimum_of_a_linear_head_is_a_ridge_regression():
    """Of the logarithm of depths by the pixels' features, within 1e-4.

    The loss is a quadratic function of the head's weights, so that a step of Newton's method ends
    at its optimum.
    """
    penalty, images, logs = 0.1, normal(12, 16, 16, 3), normal(12, 16, 16, seed=1)
    model, loss = dense("linear depth"), ScaleInvariantLogLoss(share=0.0)
    features = resized(model.tokens(images, prepared=True).patches, (16, 16)).astype("float64")
    x = np.insert(features, 16, 1, axis=-1).reshape(-1, 17)
    gram = x.T @ x / len(x) + penalty * np.diag([1.0] * 16 + [0.0])
    solution = np.linalg.solve(gram, x.T @ logs.ravel() / len(x))

    kernel, bias = (weight.value for weight in model.get_layer("head").weights)
    (loss(np.exp(logs), model(images)) + penalty * kernel.square().sum()).backward()
    weights = np.append(to_numpy(kernel), to_numpy(bias))
    gradient = np.append(to_numpy(kernel.grad), to_numpy(bias.grad))
    assert_close(weights - np.linalg.solve(2 * gram, gradient), solution, 1e-4)
