"""What trained features are for survives low precision, exports, and is explained.

torch multiplies int8 and 16 bits so slowly on processors with AVX2 alone that images are small.
"""

import importlib.util

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit import VisionTransformer
from keras_vit.data import from_arrays
from keras_vit.evaluation import features, linear_probe
from keras_vit.explanation.curves import areas_below, replace_pixels
from keras_vit.exporting import FORMATS, verification
from keras_vit.exporting.formats import load_format
from tests.helpers import assert_close
from tests.trained.photographs import ENCODER, crops, needs_encoder, photographs

pytestmark = needs_encoder
PER_PHOTOGRAPH = 4
LEAST_COSINE = {"mixed_bfloat16": 0.995, "mixed_float16": 0.9999, "int8": 0.98}


def load(image_size, **fields):
    return VisionTransformer.from_preset(ENCODER, image_size=image_size, **fields)


@pytest.fixture(scope="module")
def squares():
    """Parts of fourteen photographs, and the photograph of each."""
    return crops(192, PER_PHOTOGRAPH)


@pytest.fixture(scope="module")
def expected(squares):
    return features(load(84), squares[0]).values


def scores(values, labels):
    """Shares of the crops that nearest neighbours and a linear probe of the half assign rightly."""
    unit = values / np.linalg.norm(values, axis=1, keepdims=True)
    cosines = unit @ unit.T - 2 * np.eye(len(unit))
    seen, unseen = np.arange(len(labels)) % 2 == 0, np.arange(len(labels)) % 2 == 1
    probe = linear_probe(values[seen], labels[seen], num_classes=labels.max() + 1)
    nearest = (labels[cosines.argmax(axis=1)] == labels).mean()
    return nearest, probe.accuracy(values[unseen], labels[unseen])


@pytest.mark.parametrize("precision", LEAST_COSINE)
def test_low_precision_keeps_the_scores_of_features(squares, expected, precision):
    model = load(84, dtype=None if precision == "int8" else precision)
    if precision == "int8":
        model.quantize("int8")
    images, labels = squares
    found = features(model, images).values
    norms = np.linalg.norm(found, axis=1) * np.linalg.norm(expected, axis=1)
    assert ((found * expected).sum(axis=1) / norms).min() >= LEAST_COSINE[precision]
    for score, of_float32 in zip(scores(found, labels), scores(expected, labels), strict=True):
        assert score >= of_float32 - 0.04  # two of 56 crops


@pytest.mark.filterwarnings("ignore")  # of converters
@pytest.mark.parametrize("format", FORMATS)
def test_an_export_computes_the_features_of_photographs(tmp_path, format):
    form = load_format(format)
    if form.backend != keras.backend.backend():
        pytest.skip(f"is written under {form.backend}")
    for module in {**form.writes, **form.reads}:
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"needs {module}")
    model = load(98)
    batch = model.preprocessor(list(photographs().values()))
    written = keras_vit.export(
        model, tmp_path / "model", format, outputs="features", preprocessing=False
    )
    (found,) = verification.run(form, written.path, [batch])
    assert_close(found, features(model, batch, prepared=True).values, 5e-5)


@pytest.mark.on_backend("torch")  # where it takes half a minute
def test_deletion_ranks_the_methods_that_the_docs_recommend_first():
    """Of a probe's classes: random and central maps remove less of what decides a photograph."""
    images, labels = crops(96, PER_PHOTOGRAPH)
    model = load(112)
    names = tuple(photographs())
    found = keras_vit.probe(model, from_arrays(images, labels, model, class_names=names))
    classifier = found.build_model(model)
    batch = classifier.preprocessor(list(photographs().values())[:6])
    classes = classifier.probabilities(batch, prepared=True).argmax(axis=1).astype("int32")
    areas = {}
    for method in ("integrated_gradients", "relevance", "occlusion", "random", "centre"):
        patches = keras_vit.explain(classifier, batch, classes, method, prepared=True).patches
        maps = patches.repeat(14, axis=1).repeat(14, axis=2)
        curve = replace_pixels(classifier, batch, np.zeros_like(batch), maps, classes, steps=8)
        areas[method] = float(areas_below(curve).mean())
    best = sorted(areas, key=areas.__getitem__)[:2]
    assert not {"random", "centre"} & set(best), areas
