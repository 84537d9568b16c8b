"""Scores and probes of regression models."""

import numpy as np
import pytest
from sklearn.metrics import mean_absolute_error, r2_score

from keras_vit import VisionTransformer, evaluate, probe
from keras_vit.data import from_arrays
from keras_vit.evaluation import features
from tests.helpers import assert_close, random_tiny, to_numpy

NAMES = ("brightness", "height")


def arrays():
    """Noisy grey images, and two numbers of each: a brightness, and one of another size."""
    rng = np.random.default_rng(0)
    level = rng.uniform(40, 200, 24)
    pixels = level[:, None, None, None] + 10 * rng.standard_normal((24, 16, 16, 3))
    numbers = np.stack([level, 0.001 * level + 0.002 * rng.standard_normal(24)], axis=1)
    return np.clip(pixels, 0, 255).astype("uint8"), numbers


def read_data(model, order=(0, 1)):
    pixels, numbers = arrays()
    options = {"class_names": [NAMES[k] for k in order], "task": "regression"}
    return from_arrays(pixels, numbers[:, order], model.preprocessor, 8, **options)


def test_the_scores_of_numbers_are_those_of_scikit_learn(tmp_path):
    """Names in another order are matched with the outputs; features have the numbers as labels."""
    model = random_tiny(num_classes=2, class_names=NAMES, task="regression")
    data = read_data(model)
    scores = evaluate(model, data)
    images, wanted = (np.concatenate([data[k][part] for k in range(3)]) for part in range(2))
    predicted = to_numpy(model(images))
    error = mean_absolute_error(wanted, predicted)
    r2 = r2_score(wanted, predicted, multioutput="raw_values")
    assert scores.mean_absolute_error == pytest.approx(error, rel=1e-5)
    np.testing.assert_allclose(scores.output_r2, r2, rtol=1e-4)
    swapped = evaluate(model, read_data(model, order=(1, 0)))
    np.testing.assert_allclose(swapped.output_r2, scores.output_r2, rtol=1e-6)
    for _ in range(2):  # computed, and read from the cache
        found = features(model, data, cache=tmp_path)
        np.testing.assert_array_equal(found.labels, data.labels)


def test_a_probe_of_numbers_becomes_a_model_that_predicts_them(tmp_path):
    """Each output has its own size, and counts alike in the choice."""
    model = random_tiny(num_layers=2, num_classes=0)
    data = read_data(model)
    result = probe(model, data)
    one, other = result.class_scores
    assert (result.task, result.to_dict()["class_names"]) == ("regression", NAMES)
    assert one.score > 0.9 and other.mean_absolute_error < 0.02
    result.build_model(model).save_to_preset(tmp_path / "preset")
    saved = VisionTransformer.from_preset(tmp_path / "preset")
    assert (saved.task, saved.class_names) == ("regression", NAMES)
    assert evaluate(saved, data).r2 >= result.score
    pixels, _ = arrays()
    values = features(model, pixels, result.stage, pooling=result.pooling).values
    expected = (values @ result.kernel + result.bias).astype("float32")
    assert_close(saved(saved.preprocessor(pixels)), expected, 1e-4)
