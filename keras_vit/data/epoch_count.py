"""Detection of the end of an epoch of `fit` from the calls that a data set receives.

Keras calls `on_epoch_end` of a data set more often than epochs end (Keras 3.15). `fit` and
`evaluate` call it once before their first epoch: they may have read batches there to learn
shapes, and start again. With `steps_per_execution`, the end of an incomplete execution and the
end of the epoch are two calls. With `fit(steps_per_epoch=n)`, Keras calls it every n batches,
in the middle of a pass over the data.
"""

from keras_vit.errors import ConfigError


class EpochCount:
    """Tells the ends of epochs from the other calls of `on_epoch_end`.

    Keras reads the public property `workers` of a data set once, when `fit`, `evaluate` or
    `predict` begins. The first `on_epoch_end` after that belongs to the reading of shapes. A
    later call ends an epoch if it follows the last batch of a pass.
    """

    def __init__(self) -> None:
        self._in_run = False
        self._in_epoch = False
        self._reads_shapes = False
        self._last_batch_read = False

    def run_begins(self) -> None:
        """Notes that `fit`, `evaluate` or `predict` begins on the data set."""
        self._in_run = self._reads_shapes = True
        self._in_epoch = self._last_batch_read = False

    def epoch_begins(self) -> None:
        """Notes that Keras has called `on_epoch_begin`.

        Raises:
            ConfigError: the call of `on_epoch_end` for the epoch before did not arrive.
        """
        if self._in_epoch:
            raise ConfigError(
                "Two epochs began and none ended: a subclass of ImageData that has an "
                "on_epoch_end of its own must call super().on_epoch_end() in it."
            )
        self._in_epoch = True

    def batch_read(self, is_last: bool) -> None:
        """Notes that a batch has been read; `is_last` says whether a pass ends with it."""
        self._last_batch_read |= is_last

    def on_epoch_end(self) -> bool:
        """Returns whether this call of `on_epoch_end` ends an epoch.

        Raises:
            ConfigError: the call does not come from a run of Keras on the data set itself.
        """
        if not self._in_run:
            raise ConfigError(
                "ImageData.on_epoch_end counts epochs for a `fit` that is given the data "
                "themselves; behind a wrapper, or in a training loop of your own, set `data.epoch` "
                "before each epoch, in `fit` by callbacks=[keras.callbacks.LambdaCallback("
                "on_epoch_begin=lambda epoch, logs: setattr(data, 'epoch', epoch))]."
            )
        ends = self._last_batch_read and not self._reads_shapes
        self._in_epoch = self._reads_shapes = self._last_batch_read = False
        return ends
