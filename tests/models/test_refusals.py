"""What models, their heads, losses, metrics and images refuse; a row has its words as its name."""

import keras
import numpy as np
import pytest

from keras_vit import VisionTransformer, evaluate, export
from keras_vit.data import Augmentation, from_arrays
from keras_vit.errors import CheckpointError, ConfigError
from keras_vit.explanation import attention_maps
from keras_vit.models import flops
from keras_vit.models.inference import run
from keras_vit.models.losses import SingleLabelCrossentropy
from tests.helpers import tiny
from tests.plain import normal, raises

PIXELS = np.random.default_rng(0).integers(0, 256, (12, 16, 16, 3), "uint8")
LABELS, WORDS = np.arange(12) % 2, normal(3, 16)
GAP = {"pool": {"kind": "gap"}}
NO_TOKEN = {"tokens": {"class_tokens": 0}}


def dense(width, **options):
    """A built layer for `with_head`."""
    layer = keras.layers.Dense(3, **options)
    layer.build((None, width))
    return layer


def checked(*shape, **fields):
    """The check of images of a shape by a model with these fields."""
    return lambda w: tiny(**fields)._check_images(np.zeros((2, *shape), "float32"))


def compiled(loss="auto", **options):
    return lambda w: w.model.compile("sgd", loss, **options)


def of_one(labels, **options):
    """Images with labels for a model of one logit."""
    return lambda w: from_arrays(PIXELS, labels, w.one, **options)


def named(embeddings, labels=None, scale=1.0):
    return lambda w: w.model.head_from_embeddings(embeddings, labels, scale=scale)


def tokens(stage):
    return lambda w: w.deep.tokens(w.images, stage, prepared=True)


def maps(stage, **options):
    return lambda w: attention_maps(w.deep, w.images, stage, prepared=True, **options)


def loaded(**fields):
    """A model that loads the weights of a larger one."""

    def load(w):
        tiny(image_size=32).save_weights(w.path / "x.weights.h5")
        tiny(**fields).load_weights(w.path / "x.weights.h5")

    return load


def quantised(w):
    model = tiny()
    model.quantize("int8", filters="head")
    model.save_to_preset(w.out)


def pickled(w):
    import torch

    torch.save(torch.nn.Linear(32, 4).state_dict(), w.path / "dinov2_vits14_linear_head.pth")
    w.model.with_head(w.path / "dinov2_vits14_linear_head.pth")


CONFIG = {
    # counts
    "batch_size must be a positive int, found 0": lambda w: w.model.classify(PIXELS, batch_size=0),
    "top must be a positive int, found '3'": lambda w: w.model.classify(PIXELS, top="3"),
    "image_size must be a positive int or a pair": lambda w: flops(w.model, (1, 2, 3)),
    "give an image_size": lambda w: flops(tiny(image_size=None).config),
    # fields
    "channels_last, channels_first": lambda w: tiny(data_format="channels"),
    "float31": lambda w: tiny(dtype="float31"),
    # stages
    "stage='block_99' is not one of block_0/input": tokens("block_99"),
    "stage='block_0' is not one of block_0/attention": maps("block_0"),
    "Did you mean 'pre_logits'": lambda w: run(w.model, w.images, ["pre_logit"]),
    # images
    "images is empty": lambda w: run(w.model, w.images[:0]),
    "np.moveaxis(images, 1, -1)": checked(3, 16, 16),
    "np.moveaxis(images, -1, 1)": checked(16, 16, 3, data_format="channels_first"),
    "image_size=(20, 24)": checked(20, 24, 3),
    "They have 1 channels": checked(16, 16, 1),
    "images[None]": checked(16, 3),
    "a prepared batch": lambda w: w.model.tokens(w.images),
    # heads
    "vectors of width 7": lambda w: w.model.with_head(dense(7)),
    "shape (1, 7), expected (texts, 16)": named(normal(3, 7), "abc"),
    "'b' is zero or not finite": named({"a": normal(16), "b": np.full(16, np.nan)}),
    "give class_names": named(WORDS),
    "3 embeddings and 2 class_names": named(WORDS, "ab"),
    "2 of them different": named(WORDS, "aab"),
    "class_names and embeddings differ in": named({"a": normal(16), "b": normal(16)}, "ac"),
    "without a logit_scale": named(WORDS, "abc", None),
    # dense heads
    "the model has 1 block.": lambda w: w.model.with_dense_head(3, stages=[0, 1]),
    "task='regression' is not one": lambda w: w.model.with_dense_head(3, task="regression"),
    "task='segmentation' does not fit": lambda w: tiny(task="segmentation"),
    "the model before with_dense_head": lambda w: w.model.with_dense_head(3).with_head(dense(16)),
    # losses and metrics
    "this model has none": lambda w: tiny(num_classes=0).compile("sgd", "auto"),
    "loss='crossentropy'": compiled({"head": "crossentropy"}),
    "loss='kl_divergence' takes probabilities": compiled("kl_divergence"),
    "4 classes; the model has 5": lambda w: SingleLabelCrossentropy()(np.eye(4), normal(4, 5)),
    # one logit for two classes
    "'sparse_categorical_crossentropy' compares": lambda w: w.one.compile(
        "adam", "sparse_categorical_crossentropy"
    ),
    "whose labels are 0 and 1": of_one(LABELS, one_hot=True),
    "num_classes=2 for one-hot": of_one(LABELS, augmentation="medium2"),
    "load it with num_classes=2": of_one(np.eye(2)[LABELS]),
    "the data have 1": of_one(0 * LABELS, class_names=["cat"]),
    "takes scaled=True": lambda w: from_arrays(PIXELS, LABELS, tiny(rescale=True)).check(w.model),
    "has label 2": lambda w: evaluate(w.one, (PIXELS, LABELS + 1)),
    "1 class_names": lambda w: VisionTransformer(w.one.config, class_names=["dog"]),
    # packed patches
    "tokens() needs images of one size": lambda w: w.packed.tokens(
        np.zeros((1, 16, 50)), prepared=True
    ),
    "An export needs": lambda w: export(w.packed, w.out, format="onnx"),
    "packed patches (batch, 16, 50)": lambda w: run(w.packed, w.images),
    "2x9 patches": lambda w: w.packed.preprocessor.pack(normal(1, 18, 48), [(2, 9)]),
    "mixup=0": lambda w: from_arrays(
        PIXELS, LABELS, w.packed, augmentation=Augmentation(mixup=0.2), one_hot=True
    ),
}
METRICS = {
    "'auc'": ["auc"],
    "Precision": [keras.metrics.Precision],
    "SparseCategoricalCrossentropy": [keras.metrics.SparseCategoricalCrossentropy()],
}
CONFIG |= {f"metric {name}": compiled(metrics=each) for name, each in METRICS.items()}
HEADS = {
    "width 80": {"weight": normal(3, 80), "bias": normal(3)},
    "have 16": {"weight": normal(3, 24), "bias": normal(3)},
    "decode_head.bn.bias": {"decode_head.bn.bias": normal(3)},
}
CHECKPOINT = {
    **{words: lambda w, arrays=arrays: w.head(**arrays) for words, arrays in HEADS.items()},
    "pickle": pickled,
    "words.npz": lambda w: w.model.head_from_embeddings(w.path / "words.npz", scale=1.0),
    "quantised (head and others: int8)": quantised,
}
REFUSALS = {
    words: (call, error, words)
    for error, rows in ((ConfigError, CONFIG), (CheckpointError, CHECKPOINT))
    for words, call in rows.items()
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals(name, world, messages):
    messages.check(name, REFUSALS, world)


FOREIGN = {
    "Did you mean 'block_0'": lambda w: w.model(w.images, stages=["block_0", "blok_0"]),
    "use np.moveaxis(images, 1, -1)": lambda w: keras.Sequential(
        [keras.Input((3, 16, 16)), tiny(classifier_activation="softmax")]
    ),
    "was called or built": lambda w: w.model.with_head(keras.layers.Dense(3)),
    "save it as a .keras": lambda w: w.model.with_head(keras.Sequential([dense(16)])),
    "embeddings: expected vectors of numbers": named(np.full((3, 16), "x"), "abc"),
    "Expected [(1, 5, 16)], found [(1, 17, 16)]": loaded(),
    "or to other learned tokens": loaded(image_size=32, **GAP, **NO_TOKEN),
}


@pytest.mark.parametrize("words", FOREIGN)
def test_refusals_among_words_of_keras_and_numpy(words, world):
    """Those of weights come from the layer of positions: Keras says them for every model."""
    with raises(ValueError, words):
        FOREIGN[words](world)


@pytest.mark.parametrize("given", METRICS.values(), ids=METRICS)
def test_a_weighted_metric_of_probabilities_is_refused_too_and_taken_of_probabilities(given):
    with pytest.raises(ConfigError, match="takes probabilities"):
        tiny(num_classes=3).compile("sgd", "auto", weighted_metrics=given)
    tiny(num_classes=3, classifier_activation="softmax").compile("sgd", "auto", metrics=given)
