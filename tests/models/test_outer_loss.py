"""Programs of tutorials, in which another model is around a model that returns logits."""

import warnings

import keras
import numpy as np
import pytest

from tests.helpers import normal, tiny

IMAGES, LABELS = normal(8, 16, 16, 3), np.arange(8) % 5
BY_NAME = "sparse_categorical_crossentropy"
FROM_LOGITS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
LAYERS = keras.layers


class Wrapped(keras.Model):
    """A model of a tutorial, with a Vision Transformer and perhaps a head behind it."""

    def __init__(self, vit, head=None):
        super().__init__()
        self.scale = LAYERS.Rescaling(1.0)
        self.vit = vit
        self.head = head

    def call(self, images):
        z = self.vit(self.scale(images))
        return z if self.head is None else self.head(z)


def made_first(vit):
    """A model of a tutorial whose layers are in another order than its computation."""
    model = Wrapped(vit)
    model.late = LAYERS.Rescaling(1.0)
    return model


class OwnStep(Wrapped):
    """A model with the training step of Keras's guide, which computes no gradient here."""

    def train_step(self, *arguments):
        return super().train_step(*arguments)


def in_functional(vit, change=lambda z: z):
    images = keras.Input((16, 16, 3))
    return keras.Model(images, change(vit(LAYERS.Rescaling(1.0)(images))))


WRONG = {
    "sequential": lambda: keras.Sequential([LAYERS.Rescaling(1.0), tiny()]),
    "sequential_with_input": lambda: keras.Sequential([keras.Input((16, 16, 3)), tiny()]),
    "augmentation": lambda: keras.Sequential([LAYERS.RandomFlip(), LAYERS.Rescaling(1.0), tiny()]),
    "nested": lambda: keras.Sequential(
        [LAYERS.Rescaling(1.0), keras.Sequential([LAYERS.RandomFlip(), tiny()])]
    ),
    "functional": lambda: in_functional(tiny()),
    "subclass": lambda: Wrapped(tiny()),
    "layers_that_keep_logits": lambda: keras.Sequential(
        [tiny(), LAYERS.Dropout(0.1), LAYERS.Activation("linear", dtype="float32")]
    ),
    "scaling_made_last": lambda: made_first(tiny()),
    "own_step": lambda: OwnStep(tiny()),
}
RIGHT = {
    "own_softmax": lambda: keras.Sequential([tiny(), LAYERS.Softmax()]),
    "softmax_function": lambda: in_functional(tiny(), keras.ops.softmax),
    "own_head": lambda: keras.Sequential(
        [tiny(num_classes=0), LAYERS.Dense(5, activation="softmax")]
    ),
    "head_behind_logits": lambda: in_functional(tiny(), LAYERS.Dense(5, activation="softmax")),
    "activation": lambda: keras.Sequential(
        [LAYERS.Rescaling(1.0), tiny(classifier_activation="softmax")]
    ),
    "subclass_with_a_head": lambda: Wrapped(tiny(), LAYERS.Dense(5, activation="softmax")),
    "activation_behind": lambda: keras.Sequential([tiny(), LAYERS.Activation("softmax")]),
    "features": lambda: Wrapped(tiny(num_classes=0), LAYERS.Dense(5, activation="softmax")),
}


def fit(model, loss=BY_NAME):
    model.compile("sgd", loss, metrics=["accuracy"])
    model.fit(IMAGES, LABELS, verbose=0, batch_size=4)
    return model


@pytest.mark.parametrize("form", WRONG)
def test_a_wrapped_model_of_logits_warns_once_with_both_fixes(form):
    """Once, although two steps of a training and an evaluation follow."""
    model = WRONG[form]()
    with pytest.warns(UserWarning, match="'vit' returns logits") as record:
        fit(model).evaluate(IMAGES, LABELS, verbose=0)
    said = [str(each.message) for each in record if "returns logits" in str(each.message)]
    assert len(said) == 1
    assert 'classifier_activation="softmax"' in said[0]
    assert "SparseCategoricalCrossentropy(from_logits=True)" in said[0]


@pytest.mark.parametrize("form", [*RIGHT, "from_logits", "own_loss"])
def test_a_wrapper_with_probabilities_or_a_loss_of_logits_does_not_warn(form):
    """Features, an activation, a softmax or a head behind, a loss of the user."""
    own = {"from_logits": FROM_LOGITS, "own_loss": lambda labels, z: keras.ops.mean(z)}
    with warnings.catch_warnings():
        warnings.filterwarnings("error", ".*returns logits")
        fit(RIGHT.get(form, WRONG["sequential"])(), own.get(form, BY_NAME))


@pytest.mark.parametrize(
    "loss",
    [[BY_NAME], {"vit": BY_NAME}, "crossentropy", keras.losses.SparseCategoricalCrossentropy()],
    ids=["list", "dict", "crossentropy", "object"],
)
def test_every_form_of_a_loss_of_probabilities_is_known(loss):
    with pytest.warns(UserWarning, match="returns logits"):
        fit(in_functional(tiny()), loss)


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize(("of_vit", "warns"), [(BY_NAME, True), (FROM_LOGITS, False)])
def test_one_of_several_outputs_is_known_wherever_it_stands(of_vit, warns, first):
    """The loss of another output, which is of probabilities, causes no warning."""
    images = keras.Input((16, 16, 3))
    other = LAYERS.Dense(5, activation="softmax")(LAYERS.Flatten()(images))
    pairs = [(tiny()(images), of_vit), (other, BY_NAME)]
    outputs, losses = zip(*(pairs if first else pairs[::-1]), strict=True)
    model = keras.Model(images, list(outputs))
    model.compile("sgd", list(losses))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(IMAGES, [LABELS, LABELS], verbose=0)
    assert any("returns logits" in str(each.message) for each in caught) == warns


@pytest.mark.parametrize("loss", ["kl_divergence", "dice", "tversky"])
def test_a_loss_that_only_takes_probabilities_is_known_too(loss):
    """Alone it cannot be given the logits; the model needs another activation."""
    model = tiny()
    with pytest.warns(UserWarning, match=f"loss='{loss}' is for probabilities"):
        model.compile("sgd", loss)
    with pytest.warns(UserWarning, match=f"returns logits.*loss='{loss}'"):
        in_loss = in_functional(tiny())
        in_loss.compile("sgd", loss, run_eagerly=True)
        in_loss.evaluate(IMAGES, np.eye(5, dtype="float32")[LABELS], verbose=0)


def test_the_warning_comes_in_an_evaluation_too():
    model = WRONG["functional"]()
    model.compile("sgd", BY_NAME)
    with pytest.warns(UserWarning, match="returns logits"):
        model.evaluate(IMAGES, LABELS, verbose=0)


def test_a_call_a_prediction_and_a_training_of_its_own_do_not_warn():
    model = WRONG["sequential"]()
    model.compile("sgd", BY_NAME)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", ".*returns logits")
        model(IMAGES)
        model.predict(IMAGES, verbose=0)
        fit(tiny(), FROM_LOGITS)


ONE_HOT = np.eye(5, dtype="float32")[LABELS]


class OwnAUC(keras.metrics.AUC):
    """A metric of the user, which may apply an activation itself."""

    def update_state(self, y_true, y_pred, sample_weight=None):
        return super().update_state(y_true, keras.ops.sigmoid(y_pred), sample_weight)


def fit_with_metrics(outer, metrics, labels=ONE_HOT, **options):
    loss = keras.losses.BinaryCrossentropy(from_logits=True)
    outer.compile("sgd", loss, metrics=metrics, **options)
    outer.fit(IMAGES, labels, verbose=0, batch_size=4)
    outer.evaluate(IMAGES, labels, verbose=0)


@pytest.mark.parametrize(
    "metrics",
    [[keras.metrics.AUC()], ["auc"], {"vit": [keras.metrics.Precision()]}, [keras.metrics.Recall]],
    ids=["object", "name", "dict", "class"],
)
def test_a_metric_of_probabilities_of_a_wrapper_causes_the_warning_too(metrics):
    """Its value is wrong without a word otherwise; the loss here is one of logits."""
    wanted = r"takes them for probabilities in the metric '\S+': .*classifier_activation"
    with pytest.warns(UserWarning, match=wanted) as record:
        fit_with_metrics(in_functional(tiny()), metrics)
    assert sum("returns logits" in str(each.message) for each in record) == 1


def test_weighted_metrics_and_the_accuracy_of_one_class_are_known():
    with pytest.warns(UserWarning, match="probabilities in the metric 'auc"):
        fit_with_metrics(in_functional(tiny()), None, weighted_metrics=[keras.metrics.AUC()])
    with pytest.warns(UserWarning, match="probabilities in the metric 'accuracy'"):
        fit_with_metrics(in_functional(tiny(num_classes=1)), ["accuracy"], ONE_HOT[:, :1])


def test_metrics_of_logits_or_of_the_user_do_not_warn():
    right = [keras.metrics.AUC(from_logits=True), keras.metrics.Precision(thresholds=0.0), OwnAUC()]
    with warnings.catch_warnings():
        warnings.filterwarnings("error", ".*returns logits")
        fit_with_metrics(in_functional(tiny()), ["accuracy", *right])
        fit_with_metrics(
            in_functional(tiny(classifier_activation="sigmoid")), [keras.metrics.AUC()]
        )
