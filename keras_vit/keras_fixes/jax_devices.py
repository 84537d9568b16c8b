"""Divides batches of any size among the devices of `keras.distribution`, which is for JAX alone.

Found 2026-11 in Keras 3.15.1 and before. Report: docs/upstream/jax_devices.md.

Symptom: `fit`, `evaluate` and `predict` raise at a batch that the devices do not divide, mostly the
last one. `predict_on_batch` computes the whole batch on every device.

Workaround: copies of its first image fill such a batch up. Labels and sample weights, which are
small, are given whole to every device, so that their number is the number of real images: the step
cuts the outputs to it before loss and metrics, and no copy counts. `predict` gets an array of that
length in place of labels.

A `compute_loss` of a subclass sees the copies too, unless it calls `super().compute_loss`.

Leans on: `JAXTrainer._update_metrics_variables`, and `keras_fixes/adapted_data.py`.
"""

import contextlib
import copy
from collections.abc import Iterator
from typing import Any

import jax
import keras
import numpy as np

from keras_vit.errors import ConfigError
from keras_vit.keras_fixes.adapted_data import AdaptedData

_IMAGE_RANK = 4


class DividedBatches(AdaptedData):
    """A model that uses all devices of the distribution for any number of images."""

    def _adapted(self, adapter: Any, purpose: str) -> Any:
        """Returns an adapter whose batches the devices divide."""
        parts = _parts()
        if parts == 1:
            return adapter
        if purpose == "fit" and adapter.num_batches != 1:
            _check_size(adapter.batch_size or 0, parts)
        batches = adapter.get_jax_iterator

        def get_jax_iterator() -> Iterator[Any]:
            before = None
            for batch in batches():
                x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(batch)
                count = _rows(x)
                if purpose == "fit" and count == before:  # not the remainder of a pass
                    _check_size(count, parts)
                before = count
                if purpose == "predict":
                    yield _filled(x, parts), np.zeros(count, bool)
                else:
                    _check(y, sample_weight, count, parts)
                    yield _filled(x, parts), y, sample_weight

        adapter.get_jax_iterator = get_jax_iterator
        return adapter

    def fit(self, *args: Any, **kwargs: Any) -> Any:
        """Trains as `keras.Model.fit`.

        Raises:
            ConfigError: the devices do not divide the batches.
        """
        if _parts() == 1:
            return super(AdaptedData, self).fit(*args, **kwargs)  # type: ignore[misc]
        if kwargs.get("validation_split"):
            raise ConfigError(
                "fit(validation_split=...) is for one device. Give validation_data, such as "
                "data.hold_out(share) of keras_vit.data returns."
            )
        with _labels_everywhere():
            return super().fit(*args, **kwargs)

    def evaluate(self, *args: Any, **kwargs: Any) -> Any:
        """Evaluates as `keras.Model.evaluate`."""
        if _parts() == 1:
            return super(AdaptedData, self).evaluate(*args, **kwargs)  # type: ignore[misc]
        with _labels_everywhere():
            return super().evaluate(*args, **kwargs)

    def predict(self, *args: Any, **kwargs: Any) -> Any:
        """Predicts as `keras.Model.predict`.

        Raises:
            ConfigError: several processes share the model.
        """
        _refuse_processes("predict")
        if _parts() == 1:
            return super(AdaptedData, self).predict(*args, **kwargs)  # type: ignore[misc]
        with _labels_everywhere():
            return super().predict(*args, **kwargs)

    def train_on_batch(self, x: Any, y: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Trains as `keras.Model.train_on_batch`."""
        return self._on_batch("train_on_batch", x, y, *args, **kwargs)

    def test_on_batch(self, x: Any, y: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Evaluates as `keras.Model.test_on_batch`."""
        return self._on_batch("test_on_batch", x, y, *args, **kwargs)

    def predict_on_batch(self, x: Any) -> Any:
        """Predicts as `keras.Model.predict_on_batch`.

        Raises:
            ConfigError: several processes share the model.
        """
        _refuse_processes("predict_on_batch")
        parts = _parts()
        if parts == 1:
            return super().predict_on_batch(x)  # type: ignore[misc]
        count = _rows(x)

        def divided(images: Any) -> Any:
            layout = keras.distribution.distribution().get_data_layout(images.shape)
            return jax.device_put(images, layout.backend_layout)

        filled = keras.tree.map_structure(divided, _filled(x, parts))
        return _cut(super().predict_on_batch(filled), count)  # type: ignore[misc]

    def predict_step(self, state: Any, data: Any) -> Any:
        """Returns the outputs of the real images; called by Keras."""
        outputs, non_trainable = super().predict_step(state, data)  # type: ignore[misc]
        _, real, _ = keras.utils.unpack_x_y_sample_weight(data)
        return _like(real, outputs), non_trainable

    def compute_loss(
        self, x: Any = None, y: Any = None, y_pred: Any = None, *args: Any, **kwargs: Any
    ) -> Any:
        """Returns the loss of the real images, as `keras.Model.compute_loss`."""
        return super().compute_loss(_like(y, x), y, _like(y, y_pred), *args, **kwargs)  # type: ignore[misc]

    def compute_metrics(
        self, x: Any, y: Any, y_pred: Any, *args: Any, **kwargs: Any
    ) -> dict[str, Any]:
        """Returns the metrics of the real images, as `keras.Model.compute_metrics`."""
        return super().compute_metrics(_like(y, x), y, _like(y, y_pred), *args, **kwargs)  # type: ignore[misc]

    def _update_metrics_variables(
        self, metrics: Any, loss: Any, x: Any, y: Any, y_pred: Any, sample_weight: Any
    ) -> Any:
        """Weighs the loss of a batch by the number of its real images; called by Keras."""
        return super()._update_metrics_variables(  # type: ignore[misc]
            metrics, loss, _like(y, x), y, _like(y, y_pred), sample_weight
        )

    def _on_batch(self, name: str, x: Any, y: Any, *args: Any, **kwargs: Any) -> Any:
        parts = _parts()
        if parts > 1:
            _check(y, args[0] if args else kwargs.get("sample_weight"), _rows(x), parts)
            x = _filled(x, parts)
        with _labels_everywhere():
            return getattr(super(), name)(x, y, *args, **kwargs)


def _parts() -> int:
    """The number of parts of a batch of this process: devices along the axis of the batch."""
    distribution = keras.distribution.distribution()
    if distribution is None:
        return 1
    mesh = distribution.device_mesh
    devices = mesh.shape[list(mesh.axis_names).index(distribution.batch_dim_name)]
    return max(1, int(devices) // jax.process_count())


@contextlib.contextmanager
def _labels_everywhere() -> Iterator[None]:
    """Divides only images among devices; other arrays go whole to every device.

    Several processes divide their labels too, because each has only its own.
    """
    distribution = keras.distribution.distribution()
    if distribution is None or jax.process_count() > 1:
        yield
        return
    changed = copy.copy(distribution)

    def get_data_layout(shape: Any) -> Any:
        if len(shape) >= _IMAGE_RANK:
            return distribution.get_data_layout(shape)
        return keras.distribution.TensorLayout([None] * len(shape), distribution.device_mesh)

    changed.get_data_layout = get_data_layout
    with changed.scope():
        yield


def _check_size(batch_size: int, parts: int) -> None:
    if batch_size % parts:
        raise ConfigError(
            f"batch_size={batch_size}: {parts} devices do not divide the batches of this training. "
            f"Give a multiple of {parts}."
        )


def _check(y: Any, sample_weight: Any, count: int, parts: int) -> None:
    """Refuses an incomplete batch whose number of real images a step could not know."""
    if count % parts == 0:
        return
    why = ""
    if jax.process_count() > 1:
        why = " of a process; use data with steps_per_epoch, whose batches are all full"
    elif y is None:
        why = " without labels; give full batches"
    elif any(np.ndim(a) >= _IMAGE_RANK for a in keras.tree.flatten((y, sample_weight))):
        why = " with labels of the size of images; give full batches"
    if why:
        raise ConfigError(f"{parts} devices do not divide a batch of {count} images{why}.")


def _refuse_processes(name: str) -> None:
    if keras.distribution.distribution() is not None and jax.process_count() > 1:
        raise ConfigError(
            f"{name} is for one process; {jax.process_count()} share this model. Save it, and "
            "predict with a process per machine, each for its part of the images."
        )


def _rows(x: Any) -> int:
    return int(np.shape(next(a for a in keras.tree.flatten(x) if a is not None))[0])


def _filled(x: Any, parts: int) -> Any:
    """Returns a batch whose number of rows `parts` divides, with copies of its first row."""

    def fill(array: Any) -> Any:
        missing = -len(array) % parts
        if not missing:
            return array
        array = np.asarray(array)
        return np.concatenate([array, np.repeat(array[:1], missing, axis=0)])

    return keras.tree.map_structure(fill, x)


def _like(real: Any, values: Any) -> Any:
    """Returns the first rows of `values`, as many as the labels `real` have."""
    if real is None or keras.distribution.distribution() is None:
        return values
    return _cut(values, _rows(real))


def _cut(values: Any, count: int) -> Any:
    def cut(array: Any) -> Any:
        long = np.ndim(array) and array.shape[0] is not None and array.shape[0] > count
        return array[:count] if long else array

    return keras.tree.map_structure(cut, values)
