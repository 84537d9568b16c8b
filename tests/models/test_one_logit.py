"""One logit of a single-label model decides between two classes, wherever classes are named."""

import keras
import numpy as np
import pytest
from PIL import Image

from keras_vit import VisionTransformer, checkpoints, evaluate, explain
from keras_vit.data import from_folder
from keras_vit.exporting import documents
from keras_vit.exporting.formats import load_format
from keras_vit.exporting.graph import ExportGraph
from keras_vit.exporting.plan import ExportPlan
from keras_vit.training import AugregRecipe, TransferRecipe
from tests.helpers import random_tiny, tiny, to_numpy
from tests.plain import normal
from tests.runs import sample

NAMES = ("cat", "dog")
PIXELS = np.random.default_rng(0).integers(0, 256, (12, 16, 16, 3), "uint8")


def binary(**fields):
    """A model, its prepared images, its logits, and labels of which some are wrong."""
    model = random_tiny(num_classes=1, class_names=NAMES, **fields)
    images = model.preprocessor(PIXELS)
    model.get_layer("head").set_weights([3 * normal(16, 1), np.zeros(1, "float32")])
    logits = to_numpy(model(images, stages=["logits"])["logits"])[:, 0]
    model.get_layer("head").set_weights([3 * normal(16, 1), -np.median(logits, keepdims=True)])
    logits = (logits - np.median(logits)).astype("float64")
    return model, images, logits, ((logits > 0) ^ (np.arange(12) < 3)).astype("int32")


def cross_entropy(logits, labels):
    return np.logaddexp(0, logits) - labels * logits


FORMS = {
    "ints": lambda labels: labels,
    "column": lambda labels: labels[:, None].astype("float32"),
    "floats": lambda labels: labels.astype("float32"),
}


CASES = [(form, end) for form in FORMS for end in (None, "sigmoid")]


@pytest.mark.every_backend
@pytest.mark.parametrize(
    ("form", "activation"), sample(CASES, ("ints", "sigmoid"), ("column", None))
)
def test_a_model_judges_two_classes_by_any_form_of_labels(form, activation):
    """Against NumPy; the accuracy has the outputs' threshold, class weights multiply the loss."""
    model, images, logits, labels = binary(classifier_activation=activation)
    given, losses = FORMS[form](labels), cross_entropy(logits, labels)
    shares = model.probabilities(images, prepared=True)
    np.testing.assert_allclose(shares[:, 1], 1 / (1 + np.exp(-logits)), rtol=1e-4)
    np.testing.assert_allclose(shares.sum(axis=1), 1, rtol=1e-6)
    scores = evaluate(model, (images, given), prepared=True)
    assert (scores.top1, scores.class_counts) == (0.75, tuple(np.bincount(labels)))
    assert scores.loss == pytest.approx(losses.mean(), rel=1e-4)
    best = [answer[0][0] for answer in model.classify(PIXELS)]
    assert best == [NAMES[k] for k in (logits > 0).astype(int)]
    model.compile(keras.optimizers.SGD(0.0), "auto", metrics=["accuracy"])
    scores = model.evaluate(images, given, verbose=0)
    assert scores == pytest.approx([losses.mean(), 0.75], rel=1e-4)
    history = model.fit(images, given, class_weight={0: 1.0, 1: 3.0}, verbose=0).history
    assert history["loss"][0] == pytest.approx((losses * (1 + 2 * labels)).mean(), rel=1e-4)


def test_two_folders_train_one_logit(tmp_path):
    """`ImageData` and Keras's own reader give the same model the same scores."""
    for k, pixels in enumerate(PIXELS):
        (folder := tmp_path / NAMES[k % 2]).mkdir(exist_ok=True)
        Image.fromarray(pixels // 2 + 127 * (k % 2)).save(folder / f"{k:02}.png")
    model = tiny(num_classes=1, class_names=NAMES, rescale=True)
    data = from_folder(tmp_path, model, batch_size=4)
    model.compile(keras.optimizers.Adam(0.01), "auto", metrics=["accuracy"])
    fitted = {"class_weight": data.class_weight, "shuffle": False, "epochs": 20, "verbose": 0}
    assert model.fit(data, **fitted).history["accuracy"][-1] == 1
    assert evaluate(model, data).top1 == 1
    for mode in ("int", "binary", "categorical"):
        theirs = keras.utils.image_dataset_from_directory(
            tmp_path, label_mode=mode, image_size=(16, 16), batch_size=5, verbose=False
        )
        assert evaluate(model, theirs).top1 == 1


METHODS = ("integrated_gradients", "occlusion", "gradcam")


@pytest.mark.every_backend
@pytest.mark.parametrize("method", sample(METHODS, "gradcam"))
def test_maps_of_both_classes_are_opposite(method):
    """The map of the predicted class is that of its index and of its name."""
    model, images, logits, _ = binary()
    first, second, best = (
        explain(model, images, target, method, prepared=True).maps for target in ("cat", 1, None)
    )
    if method != "gradcam":
        np.testing.assert_allclose(first, -second, atol=1e-5)
    chosen = np.where((logits > 0)[:, None, None], second, first)
    np.testing.assert_allclose(best, chosen, atol=1e-5)


def test_an_export_has_a_column_for_each_label(tmp_path):
    """Logits have one column, so that its README names no labels."""
    model, images, logits, _ = binary()
    for outputs, width in (("probabilities", 2), ("logits", 1)):
        plan = ExportPlan("onnx", outputs, "nothing", model.config, False, None, "float32", "paper")
        graph = ExportGraph(model, plan)
        answers = to_numpy(graph(images))
        assert answers.shape == (12, width)
        np.testing.assert_array_equal(answers[:, -1] > 0.5 * (width - 1), logits > 0)
        documents.write(tmp_path, load_format("onnx"), graph, None, [])
        assert ("labels[best]" in (tmp_path / "README.md").read_text()) == (width == 2)


def test_a_dense_layer_of_one_unit_is_a_head_for_two_classes(tmp_path):
    """The preset and the timm folder keep both names."""
    model, images, logits, _ = binary()
    head = keras.layers.Dense(1, activation="sigmoid")
    head.build((None, 16))
    head.set_weights(model.get_layer("head").get_weights())
    made = model.with_head(head, NAMES)
    made.save_to_preset(tmp_path / "preset")
    checkpoints.save(model, tmp_path / "timm", "timm", lossy=True)
    read = VisionTransformer.from_preset
    for each in (made, read(tmp_path / "preset"), read(tmp_path / "timm")):
        assert (each.prediction.is_binary, each.class_names) == (True, NAMES)
        shares = each.probabilities(images, prepared=True)[:, 1]
        np.testing.assert_allclose(shares, 1 / (1 + np.exp(-logits)), atol=2e-3)
    three = read(tmp_path / "preset", num_classes=3)
    assert (three.task, three.prediction.classifier_activation) == ("single_label", "softmax")


def test_recipes_have_the_loss_and_the_accuracy_of_one_logit():
    model, images, logits, labels = binary()
    for recipe in (TransferRecipe, AugregRecipe):
        model.compile(**recipe(steps=4, batch_size=4, one_hot=False).compile_args(model))
        scores = model.evaluate(images, labels, verbose=0)
        assert scores[:2] == pytest.approx([cross_entropy(logits, labels).mean(), 0.75], rel=1e-4)
