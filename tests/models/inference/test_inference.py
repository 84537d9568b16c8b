"""The inference function computes what the model computes, from any thread and at any time."""

from concurrent.futures import ThreadPoolExecutor
from threading import Event, Thread

import keras
import numpy as np
import pytest

from keras_vit import VisionTransformer
from keras_vit.errors import ConfigError
from keras_vit.explanation import attention_maps
from keras_vit.models.inference import run
from tests.helpers import assert_close, random_tiny, to_numpy
from tests.plain import normal
from tests.runs import BACKEND, sample

pytestmark = [pytest.mark.every_backend, pytest.mark.openvino]

IMAGES = normal(5, 16, 16, 3)
TRAINS = pytest.mark.skipif(BACKEND == "openvino", reason="OpenVINO does not train")


NO_TOKEN = {"tokens": {"class_tokens": 0}}
ENDS = {
    "token": {},
    "map": {"pool": {"kind": "map"}, **NO_TOKEN},
    "gap": {"pool": {"kind": "gap"}, **NO_TOKEN},
    "softmax": {"classifier_activation": "softmax", "representation_size": 8},
}


@pytest.mark.parametrize("end", sample(ENDS, "map", "softmax"))
def test_every_stage_is_the_output_of_the_layer_of_its_name(end):
    """Keras's own functional slices are the independent reference."""
    model = random_tiny(**ENDS[end])
    names = [layer.name for layer in model.layers if layer.name != "images"]
    values = run(model, IMAGES, names)
    assert list(values) == names
    slices = keras.Model(model.input, {name: model.get_layer(name).output for name in names})
    for name, expected in slices(IMAGES).items():
        assert_close(values[name], to_numpy(expected))


def _double(model):
    model.set_weights([2 * weight for weight in model.get_weights()])


def _assign(model):
    kernel = model.get_layer("head").kernel
    kernel.assign(kernel + 1)


def _add_lora(model):
    query = model.get_layer("block_0").attention.query
    query.enable_lora(2)
    for weight in query.trainable_weights:
        weight.assign(np.ones(weight.shape, "float32"))


OF_EVERY_BACKEND = [_double, _assign, _add_lora]


@pytest.mark.parametrize("change", sample(OF_EVERY_BACKEND, _assign, _add_lora))
def test_the_weights_of_the_moment_are_used(change):
    model = random_tiny()
    before = run(model, IMAGES)
    change(model)
    after = run(model, IMAGES)
    assert np.abs(after - before).max() > 0
    assert_close(after, to_numpy(model(IMAGES)))


class Negative(keras.layers.Layer):
    calls = 0

    def call(self, inputs):
        Negative.calls += 1
        return -inputs


def _change_activation(model):
    model.get_layer("head").activation = keras.activations.softmax


def _replace_norm(model):
    block = model.get_layer("block_0")
    block._tracker.unlock()  # Keras locks a built layer
    block.mlp_norm = Negative()


@TRAINS
def test_compile_makes_a_change_without_weights_count():
    """As for Keras's own `predict`."""
    model = random_tiny()
    run(model, IMAGES)
    for change in (_replace_norm, _change_activation):
        change(model)
        model.compile()
        assert_close(run(model, IMAGES), to_numpy(model(IMAGES)))


def test_a_model_whose_parts_train_by_turns_keeps_its_weights_apart():
    """Two blocks of equal shapes take turns in learning; none takes the other's place."""
    model = random_tiny(num_layers=2)
    expected = to_numpy(model(IMAGES))
    for frozen in ("block_0", "block_1"):
        for block in ("block_0", "block_1"):
            model.get_layer(block).trainable = block != frozen
        assert_close(run(model, IMAGES), expected)


class Doubled(VisionTransformer):
    def call(self, inputs, training=None):
        return 2 * super().call(inputs, training=training)


def test_a_subclass_with_its_own_call_computes_by_it_and_hides_its_stages():
    model = random_tiny()
    doubled = Doubled.from_config(model.get_config())
    doubled.set_weights(model.get_weights())
    expected = 2 * run(model, IMAGES)
    assert_close(run(doubled, IMAGES), expected)
    assert_close(doubled.predict(IMAGES, verbose=0), expected)
    with pytest.raises(ConfigError, match="without the argument `stages`"):
        run(doubled, IMAGES, ["pre_logits"])


class Pauses(keras.callbacks.Callback):
    """Pauses `fit` after its first step until `go_on` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.reached, self.go_on = Event(), Event()

    def on_train_batch_end(self, batch, logs=None):
        self.reached.set()
        assert self.go_on.wait(60)


def test_eight_threads_get_the_answers_of_one():
    """For any number of images."""
    model = random_tiny()
    expected = to_numpy(model(IMAGES))

    def compute(count: int) -> None:
        for _ in range(3):
            assert_close(run(model, IMAGES[:count], batch_size=4), expected[:count])

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(compute, (1 + k % 5 for k in range(8))))  # raises what a thread raised


@TRAINS
@pytest.mark.parametrize("method", sample(("evaluate", "predict"), "predict"))
def test_inference_beside_evaluate_and_predict_has_the_present_weights(method):
    """Which are not those of the `fit` before."""
    model, started = random_tiny(), Event()
    model.compile("sgd", "auto")
    start = model.get_weights()
    model.fit(IMAGES[:4], np.arange(4), verbose=0)
    model.set_weights(start)
    expected = to_numpy(model(IMAGES))

    def batches():
        for _ in range(50):
            started.set()
            yield IMAGES[:4], np.arange(4)

    with ThreadPoolExecutor(1) as threads:
        other = threads.submit(getattr(model, method), batches(), verbose=0)
        assert started.wait(60)
        while not other.done():
            assert_close(run(model, IMAGES), expected)
        other.result()  # raises what the thread has raised


@TRAINS
def test_a_fit_in_another_thread_does_not_disturb_inference():
    """Its first step has changed the weights, and inference sees them."""
    model, pauses = random_tiny(), Pauses()
    model.compile(keras.optimizers.SGD(0.1), "auto")
    before = run(model, IMAGES)
    fit = {"batch_size": 2, "verbose": 0, "callbacks": [pauses], "epochs": 3}
    training = Thread(target=lambda: model.fit(IMAGES[:4], np.arange(4), **fit))
    training.start()
    try:
        assert pauses.reached.wait(60)
        during = run(model, IMAGES)
    finally:
        pauses.go_on.set()
    while training.is_alive():
        assert np.isfinite(run(model, IMAGES)).all()
    training.join()
    after = run(model, IMAGES)
    assert_close(after, to_numpy(model(IMAGES)))
    assert np.abs(during - before).max() > 0
    assert np.abs(after - during).max() > 0


@TRAINS
def test_run_eagerly_calls_every_layer_for_every_batch():
    model = random_tiny()
    _replace_norm(model)
    model.compile(run_eagerly=True)
    before = Negative.calls
    run(model, IMAGES, batch_size=1)
    assert Negative.calls - before == len(IMAGES)


def test_attention_that_was_replaced_is_refused_by_the_name_of_its_block():
    model = random_tiny(num_layers=2)
    attention = model.get_layer("block_1").attention

    class Blind(type(attention)):
        def call(self, inputs, training=None, mask=None):
            return inputs

    attention.__class__ = Blind
    assert run(model, IMAGES).shape == (5, 5)
    with pytest.raises(ConfigError, match="attention weights of block_1"):
        attention_maps(model, IMAGES, prepared=True)
