"""Models, data, labels and options that the functions of evaluation refuse, each in its words."""

import numpy as np
import pytest

from keras_vit import embed, evaluate, probe
from keras_vit.data import from_arrays
from keras_vit.errors import ConfigError
from keras_vit.evaluation import choose_thresholds, features, few_shot, knn_accuracy, linear_probe
from keras_vit.evaluation.targets import numbers_or_rows
from tests.digits import write_folders
from tests.evaluation.test_probes import clusters
from tests.helpers import random_tiny, tiny

PIXELS = np.random.default_rng(0).integers(0, 256, (6, 16, 16, 3), "uint8")
IN_TURN = np.arange(6) % 3


def scored(world, change=lambda x, y: (x, y), model=None, prepared=True, **options):
    """Scores the world's images and classes, after a change."""
    data = change(world.images, world.classes)
    return evaluate(model or world.model, data, batch_size=32, prepared=prepared, **options)


def labelled(world, change):
    """Scores the images with other labels."""
    return scored(world, lambda x, y: (x, change(y)))


def with_nan(images):
    return np.where(np.arange(len(images))[:, None, None, None] == 2, np.nan, images)


def computed(world, *arguments, change=lambda x: x, **options):
    """Features of the world's images, after a change."""
    return features(world.model, change(world.images), *arguments, prepared=True, **options)


def large(world):
    return computed(world, "block_0", change=lambda x: 1e7 * x, output_dtype="float16")


def of_sizes(*batches):
    return features(random_tiny(image_size=None), [*batches], "encoder_norm")


def pooled(stage, pooling):
    model = random_tiny(pool={"kind": "gap"}, tokens={"class_tokens": 0})
    return features(model, np.zeros((1, 16, 16, 3)), stage, pooling=pooling, prepared=True)


def encoder(**fields):
    return random_tiny(num_layers=4, num_classes=0, **fields)


def arrays(labels=IN_TURN, pixels=PIXELS, **options):
    return from_arrays(pixels[: len(labels)], labels, tiny().preprocessor, **options)


def probed(*data, **options):
    """A probe of images whose classes are a, b and c."""
    return probe(encoder(), arrays(*data, class_names="abc", **options))


def numbers(size, **options):
    return arrays(size * np.arange(1.0, 7.0), task="regression", **options)


def embedded(world, *damage, name="out.npy", **options):
    """Embeds four image files, of which the numbers of `damage` are no images."""
    train, _ = write_folders(world.path, train=4, test=1, size=16)
    paths = sorted(train.rglob("*.png"))
    for k in damage:
        paths[k].write_bytes(b"no image")
    world.out = world.path / name
    return embed(world.model, options.pop("paths", paths), world.out, **options)


def regression():
    return tiny(num_classes=1, task="regression")


def judged(thresholds, **fields):
    return tiny(num_classes=2, **{"task": "multi_label", **fields}, thresholds=thresholds)


X, Y = clusters(30)
ROWS = np.eye(3, dtype=bool)[Y] | (np.arange(30) == 0)[:, None]
BROKEN = np.where(np.arange(X.size).reshape(X.shape) == 51, np.nan, X)
LEAST = np.bincount(Y).min()
NARROW = linear_probe(*clusters(30, width=8), l2=1.0)
SEVERAL = linear_probe(X, ROWS, l2=1.0)

OF_EVALUATE = {
    "a model without a head": (lambda w: scored(w, model=encoder()), "one prediction per image"),
    "few real labels": (
        lambda w: scored(w, real_labels=[[0]] * 22),
        "22 lists; the data",
    ),
    "many real labels": (lambda w: scored(w, real_labels=[[0]] * 24), "24 lists for 23"),
    "a class twice": (lambda w: scored(w, classes=[1, 1]), "expected different classes"),
    "an unknown label": (lambda w: scored(w, classes=["x"]), "no such label"),
    "prepared images": (lambda w: scored(w, prepared=False), "prepared=True"),
    "one image": (lambda w: scored(w, lambda x, y: iter([(x[0], y[0])])), "a single label"),
    "numbers for classes": (lambda w: evaluate(w.model, numbers(1)), "have 'regression'"),
    "classes for numbers": (lambda w: evaluate(regression(), arrays()), "have 'single_label'"),
    "a large label": (lambda w: labelled(w, lambda y: y + 1), "label 7"),
    "a label twice": (lambda w: labelled(w, lambda y: [[1, 1]] * 23), "lists class 1 twice"),
    "more columns": (lambda w: labelled(w, lambda y: np.eye(9)[y]), "(batch, 7)"),
    "mixed images": (
        lambda w: labelled(w, lambda y: 0.5 * np.eye(7)[y]),
        "Mixup and cutmix",
    ),
    "no labels in any list": (lambda w: labelled(w, lambda y: [[]] * 23), "All 23 images"),
    "fewer labels": (lambda w: labelled(w, lambda y: y[1:]), "23 images and 22 labels"),
    "no data": (lambda w: scored(w, lambda x, y: iter(())), "at least one batch"),
    "no labels": (lambda w: scored(w, lambda x, y: x), "no labels"),
    "another size": (lambda w: scored(w, lambda x, y: (x[:, :8], y)), "(batch, 8, 16, 3)"),
    "whole numbers": (lambda w: scored(w, lambda x, y: (x.astype("uint8"), y)), "found uint8"),
    "no logit": (lambda w: scored(w, lambda x, y: (with_nan(x), y)), "logits of image 2"),
    "weights": (lambda w: scored(w, lambda x, y: (x, y, y)), "a tuple of 3"),
    "batches as dicts": (lambda w: scored(w, lambda x, y: [{"image": x}]), "found dict"),
    "other names": (lambda w: evaluate(w.model, arrays(class_names="abz")), "'z' has no match"),
    "no thresholds": (lambda w: choose_thresholds(w.model, (PIXELS, IN_TURN)), "no thresholds"),
}
OF_FEATURES = {
    "an unknown stage": (lambda w: computed(w, "prelogits"), "Did you mean 'pre_logits'"),
    "lists": (lambda w: computed(w, change=lambda x: (x, [[1, 2]] * 23)), "one class per image"),
    "no batch": (lambda w: features(w.model, iter(())), "empty"),
    "several sizes": (lambda w: of_sizes(w.images, w.images[:, :8]), "different shapes"),
    "an unknown pooling": (lambda w: pooled(None, "mean"), "'mean'"),
    "no class token": (lambda w: pooled(None, "token_and_mean"), "need a class token"),
    "too large for float16": (large, "output_dtype=float16"),
    "another suffix": (lambda w: embedded(w, name="x.csv", paths=["x"]), "ends in .npy"),
    "no image": (lambda w: embedded(w, paths=[]), "No image"),
    "no readable image": (lambda w: embedded(w, 0, 1, 2, 3, on_error="skip"), "All 4 images"),
    "an unreadable image": (lambda w: embedded(w, 2), "not a readable image"),
    "batches of no image": (lambda w: embedded(w, batch_size=0), "batch_size"),
}
OF_PROBES = {
    "one number": (lambda w: probe(tiny(), numbers(0, class_names=["age"])), "'age'"),
    "one image of a class": (lambda w: probed([0, 0, 1, 1, 2]), "'c' has 1 of 5"),
    "constant images": (lambda w: probed(IN_TURN, 0 * PIXELS), "the same for all"),
    "another order": (lambda w: probed(shuffle=True), "shuffle=False"),
    "augmentation": (lambda w: probed(augmentation="crop_flip"), "augmentation=None"),
    "a map": (
        lambda w: probe(tiny(dense={"stages": (0,)}), "absent/"),
        "probe needs one output",
    ),
    "a pair": (lambda w: probe(encoder(), (PIXELS, IN_TURN)), "found tuple"),
    "tokens": (lambda w: linear_probe(X[:, None], Y), "pool the tokens"),
    "no neighbours": (lambda w: knn_accuracy(X, Y, 0), "neighbours must be a positive int"),
    "one image's neighbours": (lambda w: knn_accuracy(X[:1], Y[:1]), "found 1 images"),
    "29 labels": (lambda w: linear_probe(X, Y[1:]), "30 features and 29 labels"),
    "a feature of NaN": (lambda w: linear_probe(BROKEN, Y), "finite"),
    "an l2 of zero": (lambda w: linear_probe(X, Y, l2=[1, 0]), "l2=[1, 0]"),
    "a share of all": (lambda w: linear_probe(X, Y, validation_split=1.0), "=1.0"),
    "few classes": (lambda w: linear_probe(X, Y, num_classes=2), "there is label 2"),
    "no held-out image": (lambda w: linear_probe(X[:3], [0, 1, 2]), "too few to hold out"),
    "many shots": (lambda w: few_shot((X, Y), (X, Y), (LEAST + 1,)), f"expected 1 to {LEAST}"),
    "multi-label shots": (lambda w: few_shot((X, ROWS), (X, Y)), "one class per image"),
    "a narrow probe": (lambda w: NARROW.build_model(w.model), "pre_logits of this model have 16"),
    "an unknown class": (lambda w: NARROW.accuracy(X[:, :8], Y + 1), "There is label 3"),
    "narrow features": (lambda w: NARROW.predict(X[:, :3]), "width 8, found 3"),
}
OF_LABELS = {
    "a fraction": (lambda w: numbers_or_rows([0.5, 1.0]), "float64 (2,)"),
    "below zero": (lambda w: numbers_or_rows([-1, 0]), "int64 (2,)"),
    "thresholds of classes": (lambda w: judged(0.5, task="single_label"), 'task="multi_label"'),
    "a single threshold": (lambda w: judged([0.5]), "thresholds=[0.5]"),
    "a threshold above 1": (lambda w: judged(1.5), "thresholds=1.5"),
}
REFUSALS = {
    name: (call, ConfigError, words)
    for table in (OF_EVALUATE, OF_FEATURES, OF_PROBES, OF_LABELS)
    for name, (call, words) in table.items()
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals(name, world, messages):
    messages.check(name, REFUSALS, world)
