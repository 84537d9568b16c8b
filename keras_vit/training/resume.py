"""Resumes an interrupted training, with the results of an uninterrupted one."""

import dataclasses
import errno
import json
import os
import random
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_vit.distribution.processes import broadcast_from_first, whole, write_on_first_process
from keras_vit.errors import CheckpointError, ConfigError, shown
from keras_vit.models.vision_transformer import VisionTransformer
from keras_vit.support.files import replace_file
from keras_vit.training.self_supervised import SelfSupervised

STATE_FILE = "state.safetensors"

Arrays = Mapping[str, np.ndarray]


class Resume(keras.callbacks.Callback):
    """Resumes an interrupted `fit`, whose state it saves in a folder at the start of every epoch.

    The state is weights, optimizer (momentum, averages, accumulated gradients, position in the
    schedule), seeds, the global random states and the history. It is one file, which is replaced
    atomically: a process killed at any moment leaves a complete file. The same program with
    `fit(initial_epoch=resume.epoch)`, run again, repeats the epoch in which it was killed and ends
    with the same weights and history as an uninterrupted run. Short epochs (`steps_per_epoch`)
    reduce the repeated work.

    If several processes train together, the first one writes and all read; if it cannot write, all
    stop. Variables that the devices of JAX divide are gathered in the memory of each process for
    that. A training may resume on another number of processes or devices.

    Give a `PyDataset` to `fit` with `shuffle=False`: since Keras 3.16, Keras shuffles its batches
    by the index of the epoch in this call of `fit`, which starts at 0 again in a resumed one.

    `keras.callbacks.BackupAndRestore` keeps neither seeds nor history, and overwrites the
    file that it may have to read.

    Args:
        folder: folder of the state, created if absent; each training needs its own.
        data: the training data: an object with an int `epoch`, such as
            `keras_vit.data.ImageData`, which is set before every epoch; None if
            every epoch has the same batches, such as arrays with `fit(shuffle=False)`.
        callbacks: other callbacks of this `fit` whose state is saved too, such as
            `keras.callbacks.EarlyStopping`: all attributes that have changed and are
            numbers, strings or lists of arrays.

    Attributes:
        epoch: number of complete epochs in the folder; `fit` takes it as `initial_epoch`.

    Raises:
        ConfigError: `data` has no int attribute `epoch`.
        CheckpointError: the state in the folder is damaged; or in `fit`, it belongs to another
            training, or `fit` starts at another epoch.

    >>> import keras, numpy, tempfile
    >>> from keras_vit.training import Resume
    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    >>> model.compile("sgd", "mse")
    >>> folder = tempfile.mkdtemp()
    >>> resume = Resume(folder, data=None)
    >>> history = model.fit(
    ...     numpy.ones((8, 2)), numpy.ones(8), epochs=3, shuffle=False, verbose=0,
    ...     initial_epoch=resume.epoch, callbacks=[resume])
    >>> len(history.history["loss"])
    3
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        data: Any,
        callbacks: Iterable[keras.callbacks.Callback] = (),
    ) -> None:
        super().__init__()
        if data is not None and not isinstance(getattr(data, "epoch", None), int):
            raise ConfigError(
                f"Resume: data is a {type(data).__name__} without an int attribute `epoch`, so "
                "the order of its batches cannot be resumed. Expected data of keras_vit.data (for "
                "arrays, from_arrays); or None if every epoch has the same batches."
            )
        self.path = Path(path) / STATE_FILE
        self._data = data
        self._callbacks = list(callbacks)
        self._initial = [_read_progress(callback) for callback in self._callbacks]
        exists = broadcast_from_first(self.path.exists())
        self._state = read_state(self.path) if exists else None
        self.epoch: int = self._state[1]["epoch"] if self._state else 0

    def on_train_begin(self, logs: Any = None) -> None:
        if not self.model.optimizer.built:
            self.model.optimizer.build(self.model.trainable_variables)
        # Before the restore, which may change a constant learning rate, one of the settings.
        self._settings = self._describe()
        if self._state:
            self._restore_weights(*self._state)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Saves the state, when every other callback has completed the previous epoch."""
        if self._data is not None:
            self._data.epoch = epoch
        if self._state is None:
            self._save(epoch)
            return
        if epoch != self.epoch:
            raise CheckpointError(
                f"{self.path}: the state is of epoch {self.epoch}, but `fit` starts at epoch "
                f"{epoch}. Give fit initial_epoch=resume.epoch, where resume is this callback."
            )
        self._restore_the_rest(*self._state)
        self._state = None

    def on_train_end(self, logs: Any = None) -> None:
        if self._state is None:  # else the training was complete
            self._save(self.params["epochs"])

    def _variables(self) -> list[Any]:
        model = self.model
        of_model = (*model.trainable_variables, *model.non_trainable_variables)
        return [*of_model, *model.optimizer.variables]

    def _save(self, epoch: int) -> None:
        arrays = {f"variables/{k:05d}": whole(v) for k, v in enumerate(self._variables())}
        progress = []
        for k, (callback, before) in enumerate(zip(self._callbacks, self._initial, strict=True)):
            now = _read_progress(callback)
            progress.append({n: v for n, v in now.items() if n not in before or v != before[n]})
            for name, value in vars(callback).items():
                if isinstance(value, list) and all(isinstance(v, np.ndarray) for v in value):
                    arrays |= {f"callbacks/{k}/{name}/{i:05d}": v for i, v in enumerate(value)}
        facts = {
            "settings": self._settings,
            "epoch": epoch,
            "random": random_states(),
            "history": self.model.history.history,
            "callbacks": progress,
        }
        write_on_first_process(lambda: write_state(self.path, arrays, facts), self.path)
        self.epoch = epoch

    def _restore_weights(self, arrays: Arrays, facts: dict[str, Any]) -> None:
        differences = list(_differences(facts["settings"], self._settings))
        if differences:
            raise CheckpointError(
                f"{self.path}: this state belongs to another training. "
                f"{'; '.join(differences[:5])}{' and more' * (len(differences) > 5)}. Use the "
                "settings of that training, or another folder."
            )
        values, variables = list(group(arrays, "variables").values()), self._variables()
        if [value.shape for value in values] != [tuple(each.shape) for each in variables]:
            raise CheckpointError(
                f"{self.path}: holds {len(values)} variables, but the model and its optimizer have "
                f"{len(variables)}, or their shapes differ. Train in another folder."
            )
        for variable, value in zip(variables, values, strict=True):
            variable.assign(value)
        self.model.history.history = facts["history"]

    def _restore_the_rest(self, arrays: Arrays, facts: dict[str, Any]) -> None:
        """Restores the state that `on_train_begin` of other callbacks has reset."""
        self.model.history.epoch = list(range(facts["epoch"]))
        for k, (callback, progress) in enumerate(
            zip(self._callbacks, facts["callbacks"], strict=True)
        ):
            lists: dict[str, list[np.ndarray]] = {}
            for name, value in group(arrays, f"callbacks/{k}").items():
                lists.setdefault(name.split("/")[0], []).append(value)
            vars(callback).update(progress | lists)
        set_random_states(facts["random"])

    def _describe(self) -> dict[str, Any]:
        """Returns the settings that identify a training, as plain JSON types."""
        model, prefix = self.model, f"{self.model.name}/"
        # The config of another model contains names that Keras numbers per process.
        own: Any = model.encoder if isinstance(model, SelfSupervised) else model
        config = own.get_config() | {"name": None} if isinstance(own, VisionTransformer) else {}
        config |= model.settings if own is not model else {}
        names = ("seed", "batch_size", "num_images", "class_names", "augmentation")
        facts = {
            "backend": keras.backend.backend(),
            "model": {"class": type(model).__name__, **config},
            "trainable": [v.path.removeprefix(prefix) for v in model.trainable_variables],
            "epochs": self.params["epochs"],
            "steps": self.params["steps"],
            "data": {name: getattr(self._data, name, None) for name in names},
            "callbacks": [type(callback).__name__ for callback in self._callbacks],
            **_nameless(model.get_compile_config()),
        }
        return json.loads(json.dumps(facts, default=_as_json))


def _read_progress(callback: keras.callbacks.Callback) -> dict[str, Any]:
    plain = (bool, int, float, str, type(None))
    return {name: value for name, value in vars(callback).items() if isinstance(value, plain)}


def _as_json(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    return type(value).__name__


def _nameless(config: Any) -> Any:
    """Returns a config without names, because Keras numbers optimizers per process."""
    if isinstance(config, Mapping):
        return {key: _nameless(value) for key, value in config.items() if key != "name"}
    return [_nameless(value) for value in config] if isinstance(config, list) else config


def _differences(saved: Any, now: Any, name: str = "") -> Iterable[str]:
    if isinstance(saved, Mapping) and isinstance(now, Mapping):
        for key in dict.fromkeys((*saved, *now)):
            inner = f"{name}.{key}" if name else str(key)
            yield from _differences(saved.get(key), now.get(key), inner)
    elif saved != now:
        yield f"{name}: was {_in_json(saved)}, now {_in_json(now)}"


def _in_json(value: Any) -> str:
    return shown(json.dumps(value), 60, quoted=False)


def write_state(path: Path, arrays: Arrays, facts: dict[str, Any]) -> None:
    """Writes a state atomically.

    Args:
        path: path of the file.
        arrays: name -> array; slashes in names make groups.
        facts: plain JSON types, for the header of the file.

    Raises:
        WriteError: the file cannot be written; an existing state is unchanged.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    # safetensors takes the bytes of an array in memory order and stores no axis order.
    ordered = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    with replace_file(path) as temporary:
        try:
            save_file(ordered, temporary, {"keras_vit": json.dumps(facts, default=float)})
        except SafetensorError as error:  # safetensors has one type for errors of the disk
            raise OSError(errno.EIO, str(error)) from error
        with temporary.open("rb") as file:
            os.fsync(file.fileno())  # a power cut must not leave the name without the bytes


def read_state(path: Path) -> tuple[Arrays, dict[str, Any]]:
    """Returns the arrays, sorted by name, and the facts of a state.

    Raises:
        CheckpointError: the file is damaged, or not a state.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="np") as file:
            facts = json.loads((file.metadata() or {})["keras_vit"])
            arrays = {name: file.get_tensor(name) for name in sorted(file.keys())}
    except (SafetensorError, OSError, json.JSONDecodeError, KeyError) as error:
        raise CheckpointError(
            f"{path}: not a complete state of a training ({error}). Delete it to start over."
        ) from error
    return arrays, facts


def group(arrays: Arrays, name: str) -> dict[str, np.ndarray]:
    start = f"{name}/"
    return {k.removeprefix(start): array for k, array in arrays.items() if k.startswith(start)}


def random_states() -> dict[str, Any]:
    """Returns the global random states that training draws from, as plain JSON types.

    Layers keep their seeds as variables. `fit` shuffles with Python's `random` or NumPy's, and
    on torch a dropout without a seed draws from torch's global generator.
    """
    name, keys, *rest = np.random.get_state()
    words = np.asarray(keys).tolist()
    states: dict[str, Any] = {"python": random.getstate(), "numpy": [name, words, *rest]}
    if keras.backend.backend() == "torch":
        import torch

        states["torch"] = torch.get_rng_state().tolist()
        states["cuda"] = [state.tolist() for state in torch.cuda.get_rng_state_all()]
    return states


def set_random_states(states: dict[str, Any]) -> None:
    """Sets the states that `random_states` returned."""
    version, words, gauss = states["python"]
    random.setstate((version, tuple(words), gauss))
    np.random.set_state(tuple(states["numpy"]))
    if "torch" in states:
        import torch

        torch.set_rng_state(torch.tensor(states["torch"], dtype=torch.uint8))
        for device, state in enumerate(states["cuda"][: torch.cuda.device_count()]):
            torch.cuda.set_rng_state(torch.tensor(state, dtype=torch.uint8), device)
