"""Divides batches of any size among the devices of `keras.distribution`, which is for JAX alone.

Found 2026-11 in Keras 3.15.1 and before. Report: docs/upstream/jax_devices.md.

Symptom: `fit`, `evaluate` and `predict` raise at a batch that the devices do not divide, mostly the
last one. `predict_on_batch` computes the whole batch on every device.

Workaround: copies of its first image fill such a batch up. Labels and sample weights, which are
small, are given whole to every device, so that their number is the number of real images: the step
cuts the outputs to it before loss and metrics, and no copy counts. `predict` gets an array of that
length in place of labels.

Several processes call `evaluate` and `predict` with the same images: each process computes its
part of every batch, and all have all results. Keras would take the images of each process for
different ones, and its `predict` raises. In `fit` each process has its own share of each batch, as
in Keras and as `keras_vit.data` gives it; a batch that the devices do not divide is refused there.

A `compute_loss` of a subclass sees the copies too, unless it calls `super().compute_loss`.

Leans on: `JAXTrainer._update_metrics_variables`, and `keras_fixes/adapted_data.py`.
"""

import contextlib
import copy
import inspect
from collections.abc import Iterator
from typing import Any

import jax
import keras
import numpy as np

from keras_vit.distribution.processes import (
    agree,
    agree_on_model,
    data_shard,
    digest,
    on_all_devices,
)
from keras_vit.errors import ConfigError
from keras_vit.keras_fixes.adapted_data import AdaptedData

_IMAGE_RANK = 4


class DividedBatches(AdaptedData):
    """A model that uses all devices of the distribution for any number of images."""

    def _adapted(self, adapter: Any, purpose: str) -> Any:
        """Returns an adapter whose batches the devices divide."""
        if not _divides():
            return adapter
        parts = _parts_of_a_share() if purpose == "fit" else _parts()
        if purpose == "fit" and adapter.num_batches != 1:
            _check_size(adapter.batch_size or 0, parts)
        if purpose != "fit":
            agree({"numbers of batches": adapter.num_batches}, _SAME_IMAGES)
        batches = adapter.get_jax_iterator

        def shares() -> Iterator[Any]:
            before = None
            for batch in batches():
                x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(batch)
                count = _rows(x)
                if count == before:  # not the remainder of a pass
                    _check_size(count, parts)
                before = count
                _check(y, sample_weight, count, parts, own=jax.process_count() > 1)
                yield _filled(x, parts), y, sample_weight

        def divided() -> Iterator[Any]:
            for batch in _the_same_everywhere(batches()):
                x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(batch)
                count = _rows(x)
                if purpose == "predict":
                    y, sample_weight = np.zeros(count, bool), None
                else:
                    _check(y, sample_weight, count, parts)
                yield _part(_filled(x, parts)), y, sample_weight

        adapter.get_jax_iterator = shares if purpose == "fit" else divided
        return adapter

    def fit(self, *args: Any, **kwargs: Any) -> Any:
        """Trains as `keras.Model.fit`.

        Raises:
            ConfigError: the devices do not divide the batches, or processes train different models
                or have different arguments.
        """
        if not _divides():
            return super(AdaptedData, self).fit(*args, **kwargs)  # type: ignore[misc]
        given = _FIT.bind(self, *args, **kwargs).arguments
        if given.get("validation_split"):
            raise ConfigError(
                "fit(validation_split=...) is for one device. Give validation_data, such as "
                "data.hold_out(share) of keras_vit.data returns."
            )
        if jax.process_count() == 1:
            with _labels_everywhere():
                return super().fit(*args, **kwargs)
        if self.compiled:  # type: ignore[attr-defined]  # otherwise Keras raises
            numbers = ("batch_size", "epochs", "steps_per_epoch", "validation_steps")
            agree_on_model(self, {name: given.get(name) for name in numbers})
        return super().fit(*args, **kwargs)

    def evaluate(self, *args: Any, **kwargs: Any) -> Any:
        """Evaluates as `keras.Model.evaluate`."""
        if not _divides():
            return super(AdaptedData, self).evaluate(*args, **kwargs)  # type: ignore[misc]
        with _labels_everywhere():
            return super().evaluate(*args, **kwargs)

    def predict(self, *args: Any, **kwargs: Any) -> Any:
        """Predicts as `keras.Model.predict`."""
        if not _divides():
            return super(AdaptedData, self).predict(*args, **kwargs)  # type: ignore[misc]
        with _labels_everywhere():
            return super().predict(*args, **kwargs)

    def train_on_batch(self, x: Any, y: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Trains as `keras.Model.train_on_batch`."""
        if not _divides():
            return super().train_on_batch(x, y, *args, **kwargs)  # type: ignore[misc]
        own = jax.process_count() > 1
        parts = _parts_of_a_share()
        _check(y, args[0] if args else kwargs.get("sample_weight"), _rows(x), parts, own)
        with contextlib.nullcontext() if own else _labels_everywhere():
            return super().train_on_batch(_filled(x, parts), y, *args, **kwargs)  # type: ignore[misc]

    def test_on_batch(self, x: Any, y: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Evaluates as `keras.Model.test_on_batch`."""
        if not _divides():
            return super().test_on_batch(x, y, *args, **kwargs)  # type: ignore[misc]
        parts = _parts()
        _check(y, args[0] if args else kwargs.get("sample_weight"), _rows(x), parts)
        _agree_on((x, y))
        with _labels_everywhere():
            return super().test_on_batch(_part(_filled(x, parts)), y, *args, **kwargs)  # type: ignore[misc]

    def predict_on_batch(self, x: Any) -> Any:
        """Predicts as `keras.Model.predict_on_batch`."""
        if not _divides():
            return super().predict_on_batch(x)  # type: ignore[misc]
        _agree_on(x)
        count = _rows(x)

        def divided(images: Any) -> Any:
            layout = _layout(images.shape)
            return jax.make_array_from_process_local_data(layout, _part(images))

        filled = keras.tree.map_structure(divided, _filled(x, _parts()))
        return _cut(super().predict_on_batch(filled), count)  # type: ignore[misc]

    def predict_step(self, state: Any, data: Any) -> Any:
        """Returns the outputs of the real images; called by Keras."""
        outputs, non_trainable = super().predict_step(state, data)  # type: ignore[misc]
        _, real, _ = keras.utils.unpack_x_y_sample_weight(data)
        outputs = _like(real, outputs)
        if (everywhere := on_all_devices()) is not None:
            outputs = jax.lax.with_sharding_constraint(outputs, everywhere)
        return outputs, non_trainable

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


_FIT = inspect.signature(keras.Model.fit)
_SAME_IMAGES = "Give every process the same images; each computes its part of them."


def _divides() -> bool:
    """Whether several devices or processes divide the batches."""
    return _parts() > 1 or (
        keras.distribution.distribution() is not None and jax.process_count() > 1
    )


def _parts() -> int:
    """The number of parts of a batch: devices along the axis of the batch."""
    distribution = keras.distribution.distribution()
    if distribution is None:
        return 1
    mesh = distribution.device_mesh
    return int(mesh.shape[list(mesh.axis_names).index(distribution.batch_dim_name)])


def _parts_of_a_share() -> int:
    """The number of parts of this process's share of a batch."""
    return _parts() // data_shard()[1]


def _layout(shape: Any) -> Any:
    return keras.distribution.distribution().get_data_layout(shape).backend_layout


def _part(x: Any) -> Any:
    """Returns the rows of a batch that the devices of this process compute."""

    def cut(array: Any) -> Any:
        index, count = data_shard()
        rows = len(array) // count
        return array if count == 1 else np.asarray(array)[index * rows : (index + 1) * rows]

    return keras.tree.map_structure(cut, x)


def _the_same_everywhere(batches: Iterator[Any]) -> Iterator[Any]:
    """Yields batches that all processes have; a process with other batches stops all."""
    for batch in batches:
        _agree_on(batch)
        yield batch
    _agree_on(None)


def _agree_on(batch: Any) -> None:
    if jax.process_count() > 1:
        arrays = [np.asarray(array) for array in keras.tree.flatten(batch) if array is not None]
        agree({"images": np.array([digest(array) for array in arrays])}, _SAME_IMAGES)


@contextlib.contextmanager
def _labels_everywhere() -> Iterator[None]:
    """Divides only images among devices; other arrays go whole to every device."""
    distribution = keras.distribution.distribution()
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


def _check(y: Any, sample_weight: Any, count: int, parts: int, own: bool = False) -> None:
    """Refuses an incomplete batch whose number of real images a step could not know.

    `own` says that the images are this process's alone.
    """
    if count % parts == 0:
        return
    why = ""
    if own:
        why = " of a process; use data with steps_per_epoch, whose batches are all full"
    elif y is None:
        why = " without labels; give full batches"
    elif any(np.ndim(a) >= _IMAGE_RANK for a in keras.tree.flatten((y, sample_weight))):
        why = " with labels of the size of images; give full batches"
    if why:
        raise ConfigError(f"{parts} devices do not divide a batch of {count} images{why}.")


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
