"""Models predict on OpenVINO: their present weights, in the asked precision, from any thread."""

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit import finetune, kernels
from keras_vit.errors import BackendError, ConfigError
from keras_vit.kernels import reference
from keras_vit.support.backend import BACKENDS
from tests.helpers import assert_close, random_tiny, randomise, tiny, to_numpy
from tests.plain import normal
from tests.support.test_backend import run_without

pytestmark = pytest.mark.on_backend("openvino")

IMAGES = normal(3, 16, 16, 3)
PRECISION = "KERAS_VIT_OPENVINO_PRECISION"


def predicted(model, images=IMAGES):
    return model.predict(images, verbose=0)


def program(model, images=IMAGES):
    """The compiled form with which the model predicts these images."""
    return model.inference.program(model, ()).compiled_for(images)


def test_predict_uses_the_weights_after_a_change(tmp_path):
    """Keras would go on with the weights of the first call."""
    randomise(tiny(), seed=5).save_weights(tmp_path / "x.weights.h5")
    model = random_tiny()
    before = predicted(model)
    model.load_weights(tmp_path / "x.weights.h5")
    assert_close(predicted(model), to_numpy(model(IMAGES)), 1e-6)
    assert np.abs(predicted(model) - before).max() > 1e-2


def test_compiled_forms_are_kept_by_shape():
    """Any number of images uses one form; alternating sizes compile once each."""
    model = random_tiny(image_size=None, position_grid=(2, 2))
    small, large = normal(2, 16, 16, 3), normal(1, 24, 16, 3)
    first, second = program(model, small), program(model, large)
    for images in (small, large):
        assert_close(predicted(model, images), to_numpy(model(images)), 1e-6)
    assert program(model, small[:1]) is first
    assert program(model, large) is second


PRECISIONS = (
    ("float32", "", "f32"),
    ("mixed_bfloat16", "", "bf16"),
    ("float32", "bfloat16", "bf16"),
)


@pytest.mark.parametrize(("dtype", "asked", "hint"), PRECISIONS)
def test_the_precision_is_that_of_the_policy_or_of_the_setting(dtype, asked, hint, monkeypatch):
    """A processor without bfloat16 computes float32 instead."""
    monkeypatch.setenv(PRECISION, asked)
    from keras_vit.support.fixes import openvino_settings

    model = random_tiny(dtype=dtype)
    assert openvino_settings.choose(model.dtype_policy)["INFERENCE_PRECISION_HINT"] == hint
    if hint == "f32":
        assert program(model).get_property("INFERENCE_PRECISION_HINT").to_string() == "f32"
    assert np.isfinite(predicted(model)).all()


def test_threads_and_wrong_settings(monkeypatch):
    """The number of threads reaches OpenVINO; unknown words are refused with the expected ones."""
    model = random_tiny()
    monkeypatch.setenv("KERAS_VIT_OPENVINO_THREADS", "1")
    assert program(model).get_property("INFERENCE_NUM_THREADS") == 1
    for name, word in ((PRECISION, "int3"), ("KERAS_VIT_OPENVINO_THREADS", "many")):
        with monkeypatch.context() as patch:
            patch.setenv(name, word)
            with pytest.raises(ConfigError, match=f"{name}='{word}': expected"):
                predicted(model)


def test_the_cache_serves_equal_models_and_no_others(monkeypatch, tmp_path):
    """A file of the cache has the weights of the model that wrote it."""
    monkeypatch.setenv("KERAS_VIT_OPENVINO_CACHE", str(tmp_path))
    model, same = random_tiny(), random_tiny()
    other = randomise(tiny(), seed=9)
    are_cached = [program(m).get_property("LOADED_FROM_CACHE") for m in (model, same, other)]
    assert are_cached == [False, True, False]
    np.testing.assert_array_equal(predicted(same), predicted(model))
    assert_close(predicted(other), to_numpy(other(IMAGES)), 1e-6)
    kernel = other.get_layer("block_0").mlp.dense_0.kernel  # one number of one weight
    kernel.assign(to_numpy(kernel) + 0.5 * (np.arange(512) == 300).reshape(16, 32))
    assert not program(other).get_property("LOADED_FROM_CACHE")


def test_training_is_refused_in_one_sentence(tmp_path):
    """The message names the backends that train; nothing is written."""
    words = "set KERAS_BACKEND to jax, torch or tensorflow"
    with pytest.raises(BackendError, match=words):
        finetune("vit_digits", tmp_path, path=tmp_path / "out")
    with pytest.raises(BackendError, match=words):
        keras_vit.explain(random_tiny(), IMAGES, method="relevance", prepared=True)
    assert not any(tmp_path.iterdir())


def test_evaluate_and_attention_maps_and_files(tmp_path):
    """What inference consists of beside `predict`."""
    model = random_tiny(num_layers=2)
    model.compile(
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"]
    )
    labels = predicted(model).argmax(-1)
    assert model.evaluate(IMAGES, labels, verbose=0)[1] == 1
    maps = keras_vit.explanation.attention_maps(model, IMAGES, prepared=True)
    np.testing.assert_allclose(maps["block_1/attention"].sum(-1), 1, atol=1e-5)
    model.save(tmp_path / "x.keras")
    loaded = keras.saving.load_model(tmp_path / "x.keras")
    np.testing.assert_array_equal(predicted(loaded), predicted(model))


BIASES = ((1, 3, 7, 9), (2, 1, 1, 9), (2, 3, 7, 9))
"""A table for all images, a row for all queries, and one number for each score."""


@pytest.mark.parametrize("bias", BIASES)
def test_attention_with_a_bias_equals_the_reference(bias):
    """Of a packed batch too; the goldens compare the other forms with libraries."""
    shapes = ((2, 7, 3, 8), (2, 9, 3, 8), (2, 9, 3, 8), bias)
    arrays = [keras.ops.convert_to_tensor(normal(*s, seed=k)) for k, s in enumerate(shapes)]
    found, expected = (module.attention(*arrays) for module in (kernels, reference))
    assert_close(to_numpy(found), to_numpy(expected), 1e-6)


def test_the_gelu_of_processors_without_avx512_equals_the_reference():
    from keras_vit.kernels import openvino

    x = keras.ops.convert_to_tensor([*(3 * normal(999)), -3e4, -300, 0, 300, 3e4], "float32")
    found, expected = openvino.gelu_by_sigmoid(x), reference.gelu(x, True)
    np.testing.assert_allclose(to_numpy(found), to_numpy(expected), rtol=1e-6, atol=1e-5)


def test_canary_keras_predicts_with_old_weights():
    """If this fails, the fault is gone: then `predict` may be left to Keras.

    `_get_compiled_model` of the OpenVINO backend keeps a compiled model as long as the shape of the
    batch stays, and the weights are constants of that model.

    Expected: the second answer is 14.
    Found: it equals the first. The same function gives OpenVINO no precision, so that processors
    with bfloat16 instructions compute a float32 model in bfloat16 (8.6e-3 of the largest logit of
    a ViT-S/16), and its single request refuses a second thread with "Infer Request is busy".
    Remedy: drop the compiled model when a variable has another value, keep one for each shape, take
    the precision from the dtype policy, and give each thread a request.
    """
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, use_bias=False)])
    before = predicted(model, np.ones((1, 2), "float32"))
    model.layers[0].kernel.assign(np.full((2, 1), 7))
    np.testing.assert_array_equal(predicted(model, np.ones((1, 2), "float32")), before)


def test_canary_openvino_drops_an_abs():
    """If this fails, the fault is gone: `keras_vit.support.interpolation` can say `abs` again.

    The CPU plugin removes `Abs` from the difference of two constants.

    Expected: `[2. 1. 0. 1.]`.
    Found: `[-2. -1. 0. 1.]`.
    Remedy: look at the pass that removes `Abs` from values that are known as not negative.
    """
    import openvino
    from openvino import opset16

    numbers = opset16.constant(np.arange(4, dtype="float32"))
    difference = opset16.subtract(numbers, opset16.constant(np.float32(2)))
    model = openvino.Model([opset16.abs(difference).output(0)], [])
    assert openvino.Core().compile_model(model, "CPU")({})[0].min() == -2


def test_an_installation_with_openvino_alone_predicts(tmp_path):
    """Without a chosen backend."""
    keras.utils.save_img(tmp_path / "x.png", np.full((16, 16, 3), 200, "uint8"))
    code = f"""
from keras_vit import cli
status = cli.main(["predict", {str(tmp_path / "x.png")!r}, "--source", "vit_digits", "--top", "1"])
import keras
print(status, keras.backend.backend())
"""
    result = run_without(BACKENDS.keys() - {"openvino"}, code, tmp_path)
    assert result.stdout.endswith("0 openvino\n"), result.stderr
    assert "computes with openvino, the only one that is installed" in result.stderr
