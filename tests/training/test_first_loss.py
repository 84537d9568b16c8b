"""The check of the first loss, which the recipes carry."""

import keras
import numpy as np
import pytest

from keras_vit.training import AugregRecipe, TransferRecipe
from keras_vit.training.first_loss import FirstLoss
from tests.helpers import random_tiny, tiny
from tests.plain import normal

pytestmark = pytest.mark.every_backend

IMAGES, LABELS = normal(8, 16, 16, 3), np.arange(8) % 5


def test_a_first_loss_far_above_chance_warns_with_the_usual_causes():
    """So does NaN; a usual loss does not, and later losses are not read."""
    model = random_tiny()
    model.get_layer("head").set_weights([w * 100 for w in model.get_layer("head").get_weights()])
    model.compile(keras.optimizers.SGD(0.0), "auto")
    with pytest.warns(UserWarning, match=r"chance would be 1\.61\. Usual causes") as warned:
        model.fit(IMAGES, LABELS, verbose=0, epochs=2, callbacks=[FirstLoss(5)])
    assert len([w for w in warned if "Usual causes" in str(w.message)]) == 1
    with pytest.warns(UserWarning, match="The loss is nan"):
        FirstLoss(5).on_train_batch_end(0, {"loss": np.nan})
    FirstLoss(5).on_train_batch_end(0, {"loss": 4.8})


def test_the_recipes_carry_the_check_of_the_first_loss():
    model = tiny()
    for recipe in (TransferRecipe(10), AugregRecipe(10)):
        assert any(isinstance(each, FirstLoss) for each in recipe.fit_args(model)["callbacks"])
