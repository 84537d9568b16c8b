"""Training without labels continues a trained encoder without a loss of what it knows."""

import pytest
from PIL import Image

from keras_vit import VisionTransformer, pretrain
from keras_vit.data import Views
from keras_vit.evaluation import features, knn_accuracy
from keras_vit.training import PretrainRecipe
from tests.trained.photographs import ENCODER, crops, needs_encoder

pytestmark = [needs_encoder, pytest.mark.nightly]
SIDE = 112
RECIPE = PretrainRecipe(
    200,
    16,
    learning_rate=2e-5,
    projector=(512, 512, 64),
    directions=256,
    views=Views(SIDE, 42, local_views=3),
)


def test_nearest_neighbours_of_crops_are_of_the_same_photograph_at_least_as_often(tmp_path):
    """Training on 336 crops of fourteen photographs; the neighbours are of 168 others."""
    (tmp_path / "crops").mkdir()
    for k, square in enumerate(crops(144, 24)[0]):
        Image.fromarray(square).save(tmp_path / "crops" / f"{k}.png")
    result = pretrain(tmp_path / "crops", source=ENCODER, path=tmp_path / "run", recipe=RECIPE)
    others, labels = crops(SIDE, 12)
    before, after = (
        knn_accuracy(features(model, others).values, labels, neighbours=1)
        for model in (
            VisionTransformer.from_preset(source, image_size=SIDE, num_classes=0)
            for source in (ENCODER, result.path)
        )
    )
    assert after >= before > 0.5
