"""Trains right on the replicas of a strategy of TensorFlow, in one process and in several.

Found 2026-11 in Keras 3.15.1 and TensorFlow 2.21.0.

Symptom: a model that two replicas train on batches of 7 images ends with other weights than on one
device, silently. `evaluate` of one image raises before `fit` has built the model.
`predict_on_batch` returns the outputs of all images once per replica. Under
`MultiWorkerMirroredStrategy`, `fit` and `evaluate` raise.

Cause: TensorFlow gives one replica 4 images and the other 3. Each computes the mean of its own
losses, and Keras takes the mean of both, so that images count differently. In order to build the
model, Keras takes the mean of the replicas' images, whose numbers may differ. A single batch goes
whole to every replica. With several workers Keras reduces the logs, which are scalars, along an
axis.

Workaround: `fit` refuses batches that the replicas do not divide; evaluation and prediction sum
over images and are right. The model is built from the images of the first replica. With several
workers, logs have an axis. `predict_on_batch` returns the outputs of the first replica.

Leans on: `keras_fixes/adapted_data.py`, `TensorFlowTrainer._maybe_symbolic_build`.
"""

from typing import Any

import tensorflow as tf

from keras_vit.errors import ConfigError
from keras_vit.keras_fixes.tensorflow_tuning import UntunedData


class EqualShares(UntunedData):
    """A model whose replicas train on equally many images of each batch."""

    def _adapted(self, adapter: Any, purpose: str) -> Any:
        adapter = super()._adapted(adapter, purpose)
        replicas = self.distribute_strategy.num_replicas_in_sync  # type: ignore[attr-defined]
        if purpose != "fit" or replicas == 1:
            return adapter
        make = adapter.get_tf_dataset

        def checked(*batch: Any) -> Any:
            rows = tf.shape(tf.nest.flatten(batch)[0])[0]
            with tf.control_dependencies(
                [tf.debugging.assert_equal(rows % replicas, 0, _sentence(replicas))]
            ):
                return tf.nest.map_structure(tf.identity, batch, expand_composites=True)

        def get_tf_dataset() -> Any:
            dataset = make()
            return dataset.map(checked) if isinstance(dataset, tf.data.Dataset) else dataset

        adapter.get_tf_dataset = get_tf_dataset
        return adapter

    def _maybe_symbolic_build(self, iterator: Any = None, data_batch: Any = None) -> None:
        """Builds the model from the first batch; called by Keras."""
        strategy = self.distribute_strategy  # type: ignore[attr-defined]
        if iterator is not None and strategy.num_replicas_in_sync > 1:
            _, _, batches = next(iter(iterator))
            iterator, data_batch = (
                None,
                tf.nest.map_structure(
                    lambda value: strategy.experimental_local_results(value)[0], next(batches)
                ),
            )
        super()._maybe_symbolic_build(iterator, data_batch)  # type: ignore[misc]

    def train_step(self, data: Any) -> Any:
        """Trains on a batch; called by Keras."""
        return self._with_an_axis(super().train_step(data))  # type: ignore[misc]

    def test_step(self, data: Any) -> Any:
        """Evaluates a batch; called by Keras."""
        return self._with_an_axis(super().test_step(data))  # type: ignore[misc]

    def _with_an_axis(self, logs: Any) -> Any:
        """Returns logs as Keras reduces them over workers."""
        if not _has_workers(self.distribute_strategy):  # type: ignore[attr-defined]
            return logs
        return tf.nest.map_structure(lambda value: tf.reshape(value, [1]), logs)

    def predict_on_batch(self, x: Any) -> Any:
        """Predicts as `keras.Model.predict_on_batch`; every replica computes the whole batch."""
        outputs = super().predict_on_batch(x)  # type: ignore[misc]
        if self.distribute_strategy.num_replicas_in_sync == 1:  # type: ignore[attr-defined]
            return outputs
        count = len(tf.nest.flatten(x)[0])
        return tf.nest.map_structure(lambda output: output[:count], outputs)

    def fit(self, *args: Any, **kwargs: Any) -> Any:
        """Trains as `keras.Model.fit`.

        Raises:
            ConfigError: the replicas of the model's strategy do not divide a batch.
        """
        try:
            return super().fit(*args, **kwargs)
        except tf.errors.InvalidArgumentError as error:
            sentence = _sentence(self.distribute_strategy.num_replicas_in_sync)  # type: ignore[attr-defined]
            if sentence in str(error):
                raise ConfigError(sentence) from None
            raise


def _has_workers(strategy: Any) -> bool:
    replicas = strategy.num_replicas_in_sync
    return replicas > 1 and replicas > len(strategy.extended.worker_devices)


def _sentence(replicas: int) -> str:
    return (
        f"{replicas} replicas do not divide a batch of this training, whose images would then "
        f"count differently. Give batches of a multiple of {replicas} images; steps_per_epoch of "
        "keras_vit.data makes all batches full."
    )
