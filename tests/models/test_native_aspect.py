"""A model of packed patches keeps every promise of a keras_vit model."""

import numpy as np
import pytest
from PIL import Image

from keras_vit import Preprocessor, VisionTransformer
from keras_vit.data import Augmentation, from_folder
from keras_vit.evaluation import features
from keras_vit.models.inference import run
from keras_vit.serving import application
from tests.helpers import assert_close, copy_weights, random_tiny, tiny, to_numpy
from tests.plain import normal
from tests.runs import sample

NO_CLASS_TOKEN = {"class_tokens": 0}
POOLS = {
    "map": {"pool": {"kind": "map_of_patches"}, "tokens": {**NO_CLASS_TOKEN, "registers": 1}},
    "gap": {"pool": {"kind": "gap", "norm": "after"}, "tokens": {**NO_CLASS_TOKEN, "registers": 2}},
    "token": {"pool": {"kind": "token"}, "block": {"layer_scale": 1e-5, "input_norm": "patches"}},
    "mean": {"pool": {"kind": "token_and_mean"}, "position": "learned_patches", "rescale": True},
    "free": {
        **{"pool": {"kind": "map"}, "tokens": {**NO_CLASS_TOKEN, "mask": True}},
        "position": "none",
    },
}
SIDES = [(30, 90), (80, 20), (33, 44), (8, 8), (16, 16)]


def make_model(pool, **others):
    """A model of at most 16 patches, whose positions are stored for 9."""
    sizes = {"image_size": 16, "patch_size": 4, "position_grid": (3, 3), "num_classes": 3}
    return random_tiny(**{**sizes, "stem": {"kind": "packed"}, **POOLS[pool], **others})


def pictures():
    """Images of several shapes."""
    return [
        Image.fromarray((np.abs(normal(*side, 3, seed=k)) * 60).clip(0, 255).astype("uint8"))
        for k, side in enumerate(SIDES)
    ]


@pytest.mark.every_backend
@pytest.mark.parametrize("pool", sample(POOLS, "map", "gap"))
def test_an_image_gives_the_same_in_a_batch_alone_and_in_a_model_of_images(pool):
    """Padding takes no part, whatever its pixels; the same weights take images of one size."""
    model = make_model(pool)
    batch = model.preprocessor(pictures())
    assert len({tuple(image.max(axis=0)[-2:]) for image in batch}) > 2  # grids differ
    alone = np.concatenate([run(model, image[None]) for image in batch])
    assert_close(run(model, batch, batch_size=3), alone, 1e-5)
    batch[..., :-2][batch[..., -1] < 0] = 0.9
    assert_close(to_numpy(model(batch)), alone, 1e-5)
    config, images = model.config.replace(stem={"kind": "none"}), normal(2, 16, 16, 3)
    plain = copy_weights(model, tiny(**config.to_dict(), rescale=model.rescale))
    assert_close(run(model, model.preprocessor.stack(images)), run(plain, images), 1e-5)


@pytest.mark.filterwarnings("error:The images have")  # places up to 15 are no pixels
def test_another_image_size_moves_the_limit_and_not_the_stored_positions(tmp_path):
    """An image of 16 patches has the same output under a limit of 36."""
    model = make_model("map")
    model.save_to_preset(tmp_path / "preset")
    prepared = Preprocessor.from_preset(tmp_path / "preset")(pictures())
    np.testing.assert_array_equal(prepared, model.preprocessor(pictures()))
    larger = VisionTransformer.from_preset(tmp_path / "preset", image_size=24)
    assert larger.input_shape == (None, 36, 50)
    given = normal(1, 16, 48).clip(-1, 1), [(1, 16)]
    packed = model.preprocessor.pack(*given), larger.preprocessor.pack(*given)
    assert_close(run(larger, packed[1]), run(model, packed[0]), 1e-5)


def test_a_folder_of_mixed_shapes_is_classified_and_has_features(tmp_path):
    """One batch holds images of unequal shape, each at its own aspect ratio."""
    for k, picture in enumerate(pictures()):
        (folder := tmp_path / "images" / "ab"[k % 2]).mkdir(parents=True, exist_ok=True)
        picture.save(folder / f"{k}.png")
    folder, model = tmp_path / "images", make_model("map", num_classes=2)
    data = from_folder(folder, model, batch_size=5)
    found = features(model, data)
    files = sorted(folder.rglob("*.png"))
    batch = model.preprocessor(files)
    assert_close(found.values, run(model, batch, ["pre_logits"])["pre_logits"], 1e-5)
    assert found.labels.tolist() == [0, 0, 0, 1, 1]
    answers = model.classify(files, top=1)
    best = run(model, batch).argmax(axis=1)
    assert [answer[0][0] for answer in answers] == ["ab"[k] for k in best]
    model.compile("sgd", "auto")
    assert np.isfinite(model.fit(data, verbose=0).history["loss"]).all()
    cropped = from_folder(folder, model, augmentation=Augmentation(crop=None), batch_size=5)
    assert cropped[0][0].shape == (5, 16, 50)


def test_a_server_answers_what_classify_answers(tmp_path):
    """An image has fewer rows of patches than a patch has pixels."""
    model, file = make_model("gap", image_size=8, patch_size=4), tmp_path / "image.png"
    pictures()[0].save(file)
    client = pytest.importorskip("fastapi.testclient").TestClient
    with client(application(model), base_url="http://localhost") as client:
        headers = {"Content-Type": "image/png"}
        answer = client.post("/classify?top=1", content=file.read_bytes(), headers=headers)
        (best,) = answer.json()["predictions"][0]
        label, share = model.classify(file, top=1)[0][0]
        assert best["label"] == label
        assert best["probability"] == pytest.approx(share, rel=1e-5)
