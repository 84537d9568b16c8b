"""`looks_untrained` and the similarity of positions that it judges."""

import keras
import numpy as np
import pytest

from keras_vit import ConfigError, VisionTransformer
from keras_vit.explanation import looks_untrained, position_similarity
from tests.helpers import normal, numpy_of, random_tiny

pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "torch", reason="NumPy makes it of the weights"
)


@pytest.mark.parametrize("fields", [{}, {"position": "sincos2d"}, {"num_registers": 2}])
def test_position_similarity_is_the_cosine_of_position_embeddings(fields):
    """Class token and registers are left out."""
    model = random_tiny(image_size=(24, 16), **fields)
    found = position_similarity(model)
    assert found.shape == (3, 2, 3, 2)
    if not fields:
        table = numpy_of(model.get_layer("position_embedding").embedding)[0, 1:]
        one, other = table[3], table[4]  # row 1, column 1; row 2, column 0
        wanted = one @ other / np.sqrt((one @ one) * (other @ other))
        np.testing.assert_allclose(found[1, 1, 2, 0], wanted, atol=1e-6)
    np.testing.assert_allclose(np.einsum("rcrc->rc", found), 1, atol=1e-6)


def test_a_model_without_positions_is_refused():
    with pytest.raises(ConfigError, match="where there are some; the model has none"):
        position_similarity(random_tiny(position="none"))


def test_looks_untrained_names_new_positions_and_unsmooth_filters():
    """Trained positions and smooth filters pass."""
    assert looks_untrained(VisionTransformer.from_preset("vit_digits")) == []
    (positions,) = looks_untrained(VisionTransformer.from_preset("vit_digits", load_weights=False))
    assert positions.startswith("Neighbouring positions are more alike than others by")
    model = random_tiny()  # 2 x 2 positions are too few to judge
    (filters,) = looks_untrained(model)
    assert filters.startswith("Neighbouring weights of the filters correlate by")
    smooth = np.cumsum(np.cumsum(normal(8, 8, 3, 16), axis=0), axis=1)
    model.get_layer("patch_embedding").kernel.assign(smooth)
    assert looks_untrained(model) == []
    mixed = smooth.reshape(64, 3, 16)[np.random.default_rng(0).permutation(64)]
    model.get_layer("patch_embedding").kernel.assign(mixed.reshape(8, 8, 3, 16))
    assert len(looks_untrained(model)) == 1
