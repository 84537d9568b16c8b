"""Data sets of Grain go into `fit`, `evaluate` and `features` as other data sets do."""

import grain
import keras
import numpy as np
import pytest

import keras_vit
from tests.helpers import numpy_of, random_tiny


@pytest.mark.filterwarnings("ignore:`shuffle=True`")  # Keras warns of its own default
def test_a_grain_data_set_trains_scores_and_gives_features():
    """Batches come in Grain's order, prepared in its pipeline."""
    model = random_tiny(num_classes=2)
    pixels = np.random.default_rng(0).integers(0, 256, (12, 16, 16, 3), dtype="uint8")
    labels = np.arange(12, dtype="int32") % 2
    data = (
        grain.MapDataset.range(12)
        .map(lambda k: (model.preprocessor(pixels[k])[0], labels[k]))
        .batch(4)
        .to_iter_dataset()
    )
    before = numpy_of(model.get_layer("head").kernel)
    model.compile(keras.optimizers.SGD(0.1), "auto")
    model.fit(data, verbose=0)
    assert not np.array_equal(numpy_of(model.get_layer("head").kernel), before)
    images = model.preprocessor(pixels)
    actual, expected = (keras_vit.evaluate(model, d) for d in (data, (images, labels)))
    assert (actual.count, actual.top1) == (12, expected.top1)
    np.testing.assert_allclose(
        keras_vit.features(model, data).values,
        keras_vit.features(model, images).values,
        atol=1e-5,
    )
