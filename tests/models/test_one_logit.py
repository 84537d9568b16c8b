"""One logit of a single-label model decides between two classes, wherever classes are named."""

import keras
import numpy as np
import pytest
from PIL import Image

import keras_vit
from keras_vit import VisionTransformer, checkpoints, evaluate
from keras_vit.data import from_arrays, from_folder
from keras_vit.errors import CheckpointError, ConfigError
from keras_vit.exporting import documents
from keras_vit.exporting.formats import load_format
from keras_vit.exporting.graph import ExportGraph
from keras_vit.exporting.plan import ExportPlan
from keras_vit.training import AugregRecipe, TransferRecipe
from tests.helpers import random_tiny, tiny, to_numpy
from tests.plain import normal

pytestmark = pytest.mark.every_backend

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
    "one_hot": lambda labels: np.eye(2)[labels],
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("activation", [None, "sigmoid"])
def test_evaluate_judges_two_classes(activation, form):
    """Against NumPy; the outputs of a sigmoid in the graph are the same answers."""
    model, images, logits, labels = binary(classifier_activation=activation)
    shares = model.probabilities(images, prepared=True)
    np.testing.assert_allclose(shares[:, 1], 1 / (1 + np.exp(-logits)), rtol=1e-4)
    np.testing.assert_allclose(shares.sum(axis=1), 1, rtol=1e-6)
    scores = evaluate(model, (images, FORMS[form](labels)), prepared=True)
    assert scores.top1 == pytest.approx(((logits > 0) == labels).mean()) == pytest.approx(0.75)
    assert scores.loss == pytest.approx(cross_entropy(logits, labels).mean(), rel=1e-4)
    assert scores.class_counts == tuple(np.bincount(labels))
    best = [answer[0][0] for answer in model.classify(PIXELS)]
    assert best == [NAMES[k] for k in (logits > 0).astype(int)]


@pytest.mark.parametrize("form", ["ints", "column", "floats"])
@pytest.mark.parametrize("activation", [None, "sigmoid"])
def test_compile_fits_loss_and_accuracy_to_any_form_of_labels(activation, form):
    """The accuracy's threshold is that of the outputs, and class weights multiply the loss."""
    model, images, logits, labels = binary(classifier_activation=activation)
    model.compile(keras.optimizers.SGD(0.0), "auto", metrics=["accuracy"])
    given = FORMS[form](labels)
    scores = model.evaluate(images, given, verbose=0, return_dict=True)
    losses = cross_entropy(logits, labels)
    assert scores["accuracy"] == pytest.approx(0.75)
    assert scores["loss"] == pytest.approx(losses.mean(), rel=1e-4)
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
    (tmp_path / "owl").mkdir()
    Image.fromarray(PIXELS[0]).save(tmp_path / "owl" / "1.png")
    with pytest.raises(ConfigError, match="'owl' fits none.*other classes at num_classes=3"):
        from_folder(tmp_path, model, class_names=(*NAMES, "owl"))


@pytest.mark.parametrize("method", ["integrated_gradients", "occlusion", "gradcam"])
def test_maps_of_both_classes_are_opposite(method):
    """The map of the predicted class is that of its index and of its name."""
    model, images, logits, _ = binary()
    first, second, best = (
        keras_vit.explain(model, images, target, method, prepared=True)
        for target in ("cat", 1, None)
    )
    if method != "gradcam":
        np.testing.assert_allclose(first.maps, -second.maps, atol=1e-5)
    chosen = np.where((logits > 0)[:, None, None], second.maps, first.maps)
    np.testing.assert_allclose(best.maps, chosen, atol=1e-5)


@pytest.mark.parametrize("activation", [None, "sigmoid"])
def test_an_export_has_a_column_for_each_label(tmp_path, activation):
    """Logits have one column, so that its README names no labels."""
    model, images, logits, _ = binary(classifier_activation=activation)
    for outputs, width in (("probabilities", 2), ("logits", 1)):
        plan = ExportPlan("onnx", outputs, "nothing", model.config, False, None, "float32", "paper")
        graph = ExportGraph(model, plan)
        for answers in (graph.answers(images), to_numpy(graph(images))):
            assert answers.shape == (12, width)
            np.testing.assert_array_equal(answers[:, -1] > 0.5 * (width - 1), logits > 0)
        (folder := tmp_path / outputs).mkdir()
        documents.write(folder, load_format("onnx"), graph, None, [])
        assert (folder / "labels.txt").exists() == (width == 2)
        assert ("labels[best]" in (folder / "README.md").read_text()) == (width == 2)


def test_a_dense_layer_of_one_unit_is_a_head_for_two_classes(tmp_path):
    """The preset, the timm folder and the `.keras` file keep both names."""
    model, images, logits, _ = binary()
    head = keras.layers.Dense(1, activation="sigmoid")
    head.build((None, 16))
    head.set_weights(model.get_layer("head").get_weights())
    made = model.with_head(head, NAMES)
    made.save_to_preset(tmp_path / "preset")
    made.save(tmp_path / "model.keras")
    checkpoints.save(model, tmp_path / "timm", "timm", lossy=True)
    read = VisionTransformer.from_preset
    kept = [made, read(tmp_path / "preset"), keras.saving.load_model(tmp_path / "model.keras")]
    for each in (*kept, read(tmp_path / "timm")):
        assert (each.prediction.is_binary, each.class_names) == (True, NAMES)
        shares = each.probabilities(images, prepared=True)[:, 1]
        np.testing.assert_allclose(shares, 1 / (1 + np.exp(-logits)), atol=2e-3)
    three = read(tmp_path / "preset", num_classes=3)
    assert (three.task, three.prediction.classifier_activation) == ("single_label", "softmax")
    with pytest.raises(CheckpointError, match="transformers cannot .* one logit for two classes"):
        checkpoints.save(model, tmp_path / "theirs", "transformers")


@pytest.mark.parametrize("recipe", [TransferRecipe, AugregRecipe])
def test_recipes_have_the_loss_and_the_accuracy_of_one_logit(recipe):
    model, images, logits, labels = binary()
    model.compile(**recipe(steps=4, batch_size=4, one_hot=False).compile_args(model))
    scores = model.evaluate(images, labels, verbose=0, return_dict=True)
    assert scores["accuracy"] == pytest.approx(0.75)
    assert scores["loss"] == pytest.approx(cross_entropy(logits, labels).mean(), rel=1e-4)


def data(labels, **options):
    return from_arrays(PIXELS, labels, tiny(num_classes=1), **options)


def test_data_of_labels_in_a_column_have_two_classes():
    column = data((np.arange(12) % 2)[:, None].astype("float32"))
    assert column.task == "single_label"
    assert column.class_counts == {"0": 6, "1": 6}


SEVERAL = "compares the outputs of several classes, and the model has one"
LABELS = np.arange(12) % 2
REFUSED = [
    (lambda m: m.compile("adam", "sparse_categorical_crossentropy"), SEVERAL),
    (lambda m: m.compile("adam", [keras.losses.CategoricalCrossentropy()]), SEVERAL),
    (lambda m: m.compile("adam", "auto", metrics=["sparse_categorical_accuracy"]), SEVERAL),
    (lambda m: m.compile(**AugregRecipe(4, 4).compile_args(m)), SEVERAL),
    (lambda m: data(LABELS, one_hot=True), "one logit for two classes, whose labels are 0 and 1"),
    (lambda m: data(LABELS, augmentation="medium2"), "num_classes=2 for one-hot, mixed or multi-"),
    (lambda m: data(np.eye(2)[LABELS]), "load it with num_classes=2"),
    (lambda m: data(LABELS, class_names=["cat", "dog", "owl"]), "the model has 2 classes, the da"),
    (lambda m: data(0 * LABELS, class_names=["cat"]), "the data 1 .*; give class_names="),
    (lambda m: evaluate(m, (PIXELS, LABELS + 1)), "has label 2; the model has classes 0 to 1"),
    (lambda m: VisionTransformer(m.config, class_names=["dog"]), "1 class_names, expected 2"),
]


@pytest.mark.parametrize(("call", "words"), REFUSED)
def test_labels_losses_and_names_of_other_classes_are_refused(call, words):
    with pytest.raises(ConfigError, match=words):
        call(tiny(num_classes=1))
