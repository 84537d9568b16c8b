"""The inference function: runs a model on any number of images, in any thread.

`classify`, `tokens`, `features`, `evaluate`, `embed`, explanations, the comparison of an export,
the server and Ray call it. It always uses the current weights, also after `load_weights`,
LoRA or quantisation, and does not use the trainer of Keras: it works during `fit` and after a
failed `fit`. After any other change of a layer, such as a new activation, call `model.compile()` to
recompile, as for Keras's `predict`. One file per backend compiles the call, unless
`run_eagerly=True`:

    jax         keras.StatelessScope under jax.jit; images are distributed over the devices
    tensorflow  tf.function
    torch       torch.no_grad; in bfloat16 with copies of the weights in the CPU's layout
    openvino    a compiled openvino.Model
"""

import importlib
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import numpy as np

from keras_vit.config.rules import COUNT
from keras_vit.errors import ConfigError

_BACKENDS = ("jax", "openvino", "tensorflow", "torch")


class Inference:
    """The compiled calls of one model.

    Each model has one such object. The model is built and has one tensor of images as its input.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        """Held during compilation, and on JAX while a step of `fit`, or Keras's `evaluate` or
        `predict`, owns the weights."""
        self.trainer_lock = threading.RLock()
        """Held during Keras's `evaluate` and `predict`."""
        self.training_state: Any = None
        """The weights after the last step of a `fit` on JAX, or None."""
        self.kept: Any = None
        """On torch, the weights in the layout of the matrix products, or None."""
        self._programs: dict[Any, Any] = {}
        self.weights: list[Any] = []
        """The weights of the compiled calls."""

    def run(
        self,
        model: keras.Model,
        images: Any,
        stages: Sequence[str] = (),
        batch_size: int | None = None,
    ) -> Any:
        """Runs the model on images of one shape, and returns its output or its stages.

        Args:
            model: the model that this object belongs to.
            images: array `(images, height, width, channels)`, or with channels first, prepared
                for the model.
            stages: names of `keras_vit.models.graph.Stages`, for a `VisionTransformer`; empty for
                the output of the model.
            batch_size: images per step; None for all in one step.

        Returns:
            float32 array `(images, ...)`, or `{stage: array}`.

        Raises:
            ConfigError: the model has no such stage, or the images do not fit the model.
        """
        COUNT.check("batch_size", 1 if batch_size is None else batch_size)
        chosen = tuple(dict.fromkeys(stages))
        program = self.program(model, chosen)
        parts = [
            {name: value[:count] for name, value in program(padded).items()}
            for padded, count in _steps(np.asarray(images), batch_size or max(len(images), 1))
        ]
        if not parts:
            raise ConfigError("images is empty, expected at least one image.")
        names = chosen or ("",)
        values = {name: np.concatenate([part[name] for part in parts]) for name in names}
        return values if chosen else values[""]

    def program(self, model: keras.Model, stages: tuple[str, ...]) -> Any:
        """Returns the compiled call for the current weights of the model."""
        weights = model.weights
        with self.lock:
            # LoRA, quantisation and replaced layers change the weights of a model.
            if not are_same(weights, self.weights):
                self.forget_programs()
                self.weights = weights
            if stages not in self._programs:
                if stages:  # only a VisionTransformer has stages
                    model._check_stages(stages)
                self._programs[stages] = _backend().Program(self, model, stages)
            return self._programs[stages]

    def forget_programs(self) -> None:
        """Drops the compiled calls, because a layer without weights may have changed."""
        with self.lock:
            self._programs.clear()
            self.kept = None


def run(model: Any, images: Any, stages: Sequence[str] = (), batch_size: int | None = None) -> Any:
    """Runs a `VisionTransformer` on images, see `Inference.run`."""
    model._check_images(images)
    return model.inference.run(model, images, stages, batch_size)


def call(model: keras.Model, images: Any, stages: tuple[str, ...]) -> dict[str, Any]:
    """Calls a model in inference mode: `{stage: tensor}`, or `{"": output}`."""
    if not stages:
        return {"": model(images, training=False)}
    return model(images, training=False, stages=stages)


def are_same(new: Sequence[Any], old: Sequence[Any]) -> bool:
    """Whether two lists contain the same objects."""
    return list(map(id, new)) == list(map(id, old))


def as_float32(value: Any) -> np.ndarray:
    """Returns a tensor of the backend as a float32 array on the host."""
    return np.asarray(keras.ops.convert_to_numpy(value)).astype("float32", copy=False)


def _steps(images: np.ndarray, batch_size: int) -> Iterator[tuple[np.ndarray, int]]:
    """Yields each batch, padded with zeros to one of a few sizes, and its number of images."""
    for start in range(0, len(images), batch_size):
        batch = images[start : start + batch_size]
        count, missing = len(batch), _backend().padded_size(len(batch), batch_size) - len(batch)
        if missing:
            batch = np.pad(batch, [(0, missing)] + [(0, 0)] * (batch.ndim - 1))
        yield batch, count


def _backend() -> Any:
    name = keras.backend.backend()
    if name not in _BACKENDS:
        raise ConfigError(
            f"keras_vit does not support the backend {name!r}; use {', '.join(_BACKENDS)}."
        )
    return importlib.import_module(f"keras_vit.models.inference.on_{name}")
