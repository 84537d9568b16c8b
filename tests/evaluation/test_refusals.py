"""Models, data, labels and options that the functions of evaluation refuse, each in its words."""

import functools

import keras
import numpy as np
import pytest

from keras_vit import evaluate, probe
from keras_vit.data import from_arrays
from keras_vit.errors import ConfigError
from keras_vit.evaluation import features, few_shot, linear_probe
from tests.evaluation.test_probes import clusters
from tests.helpers import random_tiny

IMAGES = np.random.default_rng(0).uniform(-1, 1, (23, 16, 16, 3)).astype("float32")
PIXELS = np.random.default_rng(0).integers(0, 256, (4, 16, 16, 3), "uint8")
CLASSES = np.arange(23) % 6


@functools.cache
def classifier():
    return random_tiny(num_classes=6, class_names=list("abcdef"))


def scored(labels=CLASSES, model=None, **options):
    return evaluate(model or classifier(), (IMAGES, labels), prepared=True, **options)


def computed(data, *arguments):
    return features(classifier(), data, *arguments, prepared=True)


def numbers(labels=(0.5, 1.5, 2.5, 3.5), **options):
    """Images of which each has a number."""
    prepares = classifier().preprocessor
    return from_arrays(PIXELS, np.array(labels), prepares, task="regression", **options)


def of_numbers():
    return random_tiny(num_classes=1, task="regression")


X, Y = clusters(30)
BROKEN = np.where(np.arange(X.size).reshape(X.shape) == 51, np.nan, X)
LEAST = np.bincount(Y).min()
NARROW = linear_probe(*clusters(30, width=8), l2=1.0)

OF_EVALUATE = [
    (lambda: scored(model=random_tiny(num_classes=0)), "one prediction per image"),
    (lambda: scored(model=random_tiny(pool={"kind": "unpooled"})), "one prediction per image"),
    (lambda: scored(real_labels=[[0]] * 22), "22 lists; more images"),
    (lambda: scored(real_labels=[[0]] * 24), "24 lists for 23 images"),
    (lambda: scored(calibration_bins=0), "calibration_bins must be a positive int, found 0"),
    (lambda: scored(classes=[1, 1]), "expected different classes"),
    (lambda: scored(classes=[7]), "classes=7 is no class: the model has 6, from 0 to 5"),
    (lambda: scored(classes=[]), "expected different classes, found 0"),
    (lambda: scored(classes=["x"]), "classes='x' is no label of the model"),
    (lambda: evaluate(classifier(), (PIXELS, 3)), "Labels are int, expected one for each image"),
    (lambda: evaluate(classifier(), (IMAGES, CLASSES)), "prepared=True"),
    *(
        (lambda label=label: evaluate(classifier(), iter([(IMAGES[0], label)])), "a single label")
        for label in (3, np.int64(3), keras.ops.array(3))
    ),
    (lambda: evaluate(classifier(), numbers()), "task='single_label', the data have 'regression'"),
    (
        lambda: evaluate(of_numbers(), from_arrays(PIXELS, [0, 1] * 2, classifier().preprocessor)),
        "data have 'single_label'; read .*task='regression'",
    ),
]
OF_FEATURES = [
    (lambda: features(classifier(), IMAGES), "prepared=True"),
    (lambda: computed(IMAGES, "prelogits"), "Did you mean 'pre_logits'"),
    (lambda: computed((IMAGES, [[1, 2]] * 23)), "expected one class per image"),
    (lambda: features(classifier(), iter(())), "empty"),
    (
        lambda: computed(np.where(IMAGES > 0.99, np.nan, IMAGES)),
        "The features of an image are not finite",
    ),
    (
        lambda: features(random_tiny(image_size=None), [IMAGES, IMAGES[:, :8]], "encoder_norm"),
        "The outputs have different shapes",
    ),
]
OF_PROBES = [
    (
        lambda: probe(classifier(), numbers([3.5] * 4, class_names=["age"])),
        "All images have the same number 'age'",
    ),
    (lambda: linear_probe(X[:, None], Y), "average or choose tokens"),
    (lambda: linear_probe(X, None), "no labels"),
    (lambda: linear_probe(X, Y[1:]), "30 features and 29 labels"),
    (lambda: linear_probe(BROKEN, Y), "finite"),
    (lambda: linear_probe(np.ones_like(X), Y, l2=1), "the same for all images"),
    (lambda: linear_probe(X.astype(str), Y), "must be numbers"),
    (lambda: linear_probe([[1.0, 2.0], [1.0]], [0, 1]), "lists of one length"),
    (lambda: linear_probe(X, Y, l2=0), "positive"),
    (lambda: linear_probe(X, Y, l2=np.nan), "positive"),
    (lambda: linear_probe(X, Y, l2=[1, np.inf]), "positive"),
    (lambda: linear_probe(X, np.ones((30, 3)), num_classes=4), "labels have 3 columns"),
    (lambda: linear_probe(X, Y, validation_split=1.0), "validation_split=1.0"),
    (lambda: linear_probe(X, Y, num_classes=2), "there is label 2"),
    (lambda: linear_probe(X[:3], [0, 1, 2]), "too few to hold out"),
    (lambda: few_shot((X, Y), (X, Y), (LEAST + 1,)), f"from 1 to {LEAST}, the images of class"),
    (lambda: few_shot((X, Y), (X, Y), (1,), num_seeds=0), "num_seeds=0"),
    (lambda: few_shot((X, Y), (X, Y + 1), shots=(1,)), "test has label 3"),
    (lambda: few_shot(random_tiny(), (X, Y)), "train: expected the pair .* found <Vis"),
    (lambda: few_shot((X, Y), X), "test: expected"),
    (lambda: NARROW.build_model(classifier()), "pre_logits of this model have 16"),
    (lambda: NARROW.accuracy(X[:, :8], Y + 1), "There is label 3; the probe has classes 0 to 2"),
    (lambda: NARROW.predict(X[:, :3]), "width 8, found 3"),
]
REFUSED = OF_EVALUATE + OF_FEATURES + OF_PROBES


@pytest.mark.parametrize(("call", "message"), REFUSED, ids=range(len(REFUSED)))
def test_what_does_not_fit_is_refused(call, message):
    with pytest.raises(ConfigError, match=message):
        call()
