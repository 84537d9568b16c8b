"""The logs of a training: a CSV file and a TensorBoard log, written after every epoch."""

import csv
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras

from keras_vit.errors import ConfigError
from keras_vit.files import failure_named, written_beside


class CsvLog(keras.callbacks.Callback):
    """Writes the whole history as CSV, one row per epoch, with the learning rate.

    Each write replaces the file by the whole history, which `Resume` continues. After a killed
    training the file therefore has every row once; `keras.callbacks.CSVLogger` appends.

    Args:
        path: path of the file.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__()
        self.path = Path(path)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._write()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if logs is not None:  # as Keras's LearningRateScheduler does
            logs["learning_rate"] = float(
                keras.ops.convert_to_numpy(self.model.optimizer.learning_rate)
            )

    def on_train_end(self, logs: Any = None) -> None:
        self._write()

    def _write(self) -> None:
        history = self.model.history.history
        names = list(history)
        rows = zip(*history.values(), strict=True)
        with written_beside(self.path) as temporary, temporary.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["epoch", "step", *names])
            for epoch, row in enumerate(rows, start=1):
                writer.writerow([epoch, epoch * self.params["steps"], *row])


class TensorBoard(keras.callbacks.Callback):
    """Writes scalars for TensorBoard on every backend, without TensorFlow.

    Curves of training and validation share a chart; the x-axis is the training step. A resumed
    training logs its whole history again, which hides the earlier logs.

    Args:
        folder: folder of the logs, with the subfolders `train/` and `validation/`.

    Raises:
        ConfigError: the library tensorboardX is not installed.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        super().__init__()
        try:
            import tensorboardX
        except ImportError as error:
            raise ConfigError(
                "The TensorBoard log needs tensorboardX: pip install 'keras-vit[tensorboard]'."
            ) from error
        self._folder = Path(folder)
        self._writer = tensorboardX.SummaryWriter
        self._writers: dict[str, Any] = {}

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if self._writers:
            return
        for part in ("train", "validation"):
            # Two files made in the same second have one name; this file holds the whole history.
            with failure_named(self._folder):
                self._writers[part] = self._writer(str(self._folder / part), purge_step=0)
        history = self.model.history.history
        for past in range(epoch):
            self._add(
                past, {n: values[past] for n, values in history.items() if len(values) > past}
            )

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._add(epoch, logs or {})

    def _add(self, epoch: int, figures: Mapping[str, float]) -> None:
        for name, value in figures.items():
            part = "validation" if name.startswith("val_") else "train"
            step = (epoch + 1) * self.params["steps"]
            self._writers[part].add_scalar(name.removeprefix("val_"), value, step)
        with failure_named(self._folder):
            for writer in self._writers.values():
                writer.flush()

    def on_train_end(self, logs: Any = None) -> None:
        with failure_named(self._folder):
            for writer in self._writers.values():
                writer.close()
        self._writers = {}
