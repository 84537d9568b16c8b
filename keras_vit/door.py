"""Checks of a model's images; imports JAX or torch to know which tensors have values.

Images of a wrong shape are refused in each call of the model; on TensorFlow and JAX, a call is
traced once. Pixels out of range cause one warning per model: values are read from every array that
`fit`, `evaluate` or `predict` gets, and from the first batch of torch; integers are known by their
type in every batch. A traced tensor has no values.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, cast

import keras
import numpy as np

from keras_vit.config import ViTConfig
from keras_vit.errors import ConfigError
from keras_vit.losses import FirstLoss, FirstStepLoss
from keras_vit.terminal.messages import warn

if keras.backend.backend() == "torch":
    import torch
elif keras.backend.backend() == "jax":
    import jax

_LOOKED_AT = 8  # images


Method = TypeVar("Method", bound=Callable[..., Any])


def _shown_as(method: Any) -> Callable[[Method], Method]:
    """Decorates a method; `help` shows it with the signature and docstring of `method`."""
    return cast(Callable[[Method], Method], functools.wraps(method))


class CheckedInputs:
    """A `keras.Model` with a `config` and a `data_format` that refuses images of other shapes."""

    config: ViTConfig
    data_format: str
    _pixels_were_seen = False
    _pixels_were_doubted = False

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Calls the model.

        Raises:
            ConfigError: images of another shape than the model's; the message names the fix.
        """
        self._check(inputs)
        return super().__call__(inputs, *args, **kwargs)  # type: ignore[misc]

    def stateless_call(
        self, trainable_variables: Any, non_trainable_variables: Any, inputs: Any, **kwargs: Any
    ) -> Any:
        """Calls the model as JAX trains it; raises as `__call__`."""
        self._check(inputs)
        return super().stateless_call(  # type: ignore[misc]
            trainable_variables, non_trainable_variables, inputs, **kwargs
        )

    @_shown_as(keras.Model.fit)
    def fit(self, *args: Any, **kwargs: Any) -> Any:
        """Trains as `keras.Model.fit`; warns of pixels out of range and of a high first loss."""
        given = inspect.signature(keras.Model.fit).bind(self, *args, **kwargs).arguments
        del given["self"]
        self._look_at_data(given.get("x"))
        callbacks = given.get("callbacks")
        if self.config.num_classes > 1 and not isinstance(callbacks, keras.callbacks.CallbackList):
            kind = FirstStepLoss if given.get("verbose", "auto") else FirstLoss
            watch = kind(self.config.num_classes)
            given["callbacks"] = [*keras.tree.flatten(callbacks or []), watch]
        return super().fit(**given)  # type: ignore[misc]

    @_shown_as(keras.Model.evaluate)
    def evaluate(self, x: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Evaluates as `keras.Model.evaluate`, and warns of pixels out of range."""
        self._look_at_data(x)
        return super().evaluate(x, *args, **kwargs)  # type: ignore[misc]

    @_shown_as(keras.Model.predict)
    def predict(self, x: Any, *args: Any, **kwargs: Any) -> Any:
        """Predicts as `keras.Model.predict`, and warns of pixels out of range."""
        self._look_at_data(x)
        return super().predict(x, *args, **kwargs)  # type: ignore[misc]

    def load_weights(self, filepath: Any, *args: Any, **kwargs: Any) -> None:
        """Loads weights as `keras.Model.load_weights`.

        Raises:
            ConfigError: the weights belong to another image size.
        """
        try:
            super().load_weights(filepath, *args, **kwargs)  # type: ignore[misc]
        except ValueError as error:
            if "position_embedding" not in str(error):
                raise
            size = self.config.image_size
            raise ConfigError(
                f"{filepath}: the weights of position_embedding do not fit image_size={size}; they "
                "seem to belong to another size. Load them into a model of that size, save it by "
                "save_to_preset(folder), and resize them by "
                f"VisionTransformer.from_preset(folder, image_size={size})."
            ) from error

    @property
    def input_spec(self) -> Any:
        """None, so that the message of this class appears instead of Keras's shorter one."""
        return None

    @input_spec.setter
    def input_spec(self, value: Any) -> None:
        """Ignores the value that Keras sets while it builds a model."""

    def _check(self, inputs: Any, is_all: bool = False) -> None:
        """Checks a batch, or all images of a call of `fit`, `evaluate` or `predict`."""
        images = _only(inputs)
        shape = getattr(images, "shape", None)
        if shape is None or getattr(shape, "rank", 0) is None:  # TensorFlow may not know the rank
            return
        reason = refusal(tuple(shape), self.config, self.data_format)
        if reason is not None:
            raise ConfigError(reason)
        if is_all or not self._pixels_were_seen or _are_integers(images):
            self.look_at(images)

    def _look_at_data(self, data: Any) -> None:
        if hasattr(data, "shape") and hasattr(data, "dtype"):
            self._check(data, is_all=True)  # under JAX, Keras then takes the state out of the model
        elif hasattr(data, "file_paths") and hasattr(data, "class_names"):
            # keras.utils.image_dataset_from_directory returns pixels in [0, 255] as floats.
            self.look_at(np.full((1, 1), 255, "float32"))

    def look_at(self, images: Any) -> None:
        """Warns once if a model of prepared images gets pixels in [0, 255], or the reverse.

        Args:
            images: an array, or a tensor; of a tensor without values only the type is used.
        """
        if self._pixels_were_doubted:
            return
        found = _values_of(images)
        if found is None:
            return
        self._pixels_were_seen = True
        if warning := _doubt(found, self.config.rescale):
            self._pixels_were_doubted = True
            warn(warning)


def refusal(shape: tuple[int | None, ...], config: ViTConfig, data_format: str) -> str | None:
    """Returns the reason why a model refuses images of a shape, and a remedy; None if it fits.

    Args:
        shape: shape of the images, with None for an unknown size.
        config: configuration of the model.
        data_format: data format of the model.
    """
    height, width = config.image_size or (None, None)
    last = data_format == "channels_last"
    expected = (height, width, config.channels) if last else (config.channels, height, width)
    if len(shape) == 3 and config.channels == 1 and last:
        shape = (*shape, 1)  # Keras adds the axis of channels
    if len(shape) == 5 and shape[-1] == 1:
        shape = shape[:-1]
    found = shape[1:]
    if len(shape) == 4 and all(
        None in (a, b) or a == b for a, b in zip(found, expected, strict=True)
    ):
        return None
    told = f"The model takes images {_shown((None, *expected))}, found {_shown(shape)}."
    if len(shape) == 3:
        return f"{told} One image is a batch of one: images[None]."
    if len(shape) != 4:
        return told
    channels = found[-1 if last else 0]
    if config.channels not in (channels, None) and found[0 if last else -1] == config.channels:
        other, move = ("channels_first", "1, -1") if last else ("channels_last", "-1, 1")
        return (
            f"{told} Their axes are {other}: move them by np.moveaxis(images, {move}), or build or "
            f"load the model with data_format={other!r}."
        )
    if channels not in (None, config.channels):
        return (
            f"{told} They have {channels} channels: model.preprocessor(images) converts grey or "
            f"transparent images to {config.channels}; channels= builds a model of another number."
        )
    size = found[:2] if last else found[1:]
    return (
        f"{told} model.preprocessor(images) resizes images; from_preset(..., image_size={size}) "
        "loads the weights for that size."
    )


def _doubt(images: np.ndarray | str, rescales: bool) -> str | None:
    """Returns a warning if values or type of the first images do not fit the model, else None."""
    is_int = "int" in (images if isinstance(images, str) else images.dtype.name)
    if not rescales:
        if is_int:
            found = "integers"
        elif (
            not isinstance(images, str)
            and images.size
            and 3 < images.max() <= 255.5
            and images.min() >= 0
        ):
            found = f"pixels up to {images.max():g}"
        else:
            return None
        return (
            f"The images are {found}; this model takes prepared images, in most models in [-1, 1]. "
            "Prepare them by model.preprocessor, or build or load the model with rescale=True, "
            "which takes pixels in [0, 255]."
        )
    if not isinstance(images, str) and images.size and images.min() < 0:
        return (
            f"The images have values down to {images.min():g}; this model has rescale=True and "
            "takes pixels in [0, 255]: prepare them by model.preprocessor, or give raw pixels."
        )
    return None


def _are_integers(images: Any) -> bool:
    return "int" in str(images.dtype)


def _values_of(images: Any) -> np.ndarray | str | None:
    """Returns a few images on the host, the name of an integer type, or None without values."""
    if _are_integers(images):
        return keras.backend.standardize_dtype(images.dtype)
    if not (isinstance(images, np.ndarray) or _has_values(images)):
        return None
    try:
        return np.asarray(keras.ops.convert_to_numpy(images[:_LOOKED_AT]), "float32")
    except (RuntimeError, TypeError, ValueError):  # wrapped by torch.func or vmap
        return None


def _has_values(images: Any) -> bool:
    """Whether a tensor has values on this host; a traced or exported tensor has no values."""
    backend = keras.backend.backend()
    if isinstance(images, keras.KerasTensor):
        return False
    if backend == "torch":
        is_traced = torch.compiler.is_compiling() or torch.jit.is_tracing()
        return type(images) is torch.Tensor and not is_traced
    if backend == "jax":
        is_traced = isinstance(images, jax.core.Tracer)
        return isinstance(images, jax.Array) and not is_traced and images.is_fully_addressable
    return hasattr(images, "numpy")


def _only(inputs: Any) -> Any:
    """Returns the tensor in a functional model's inputs: a tensor, or a list or dict of one."""
    if isinstance(inputs, dict):
        inputs = list(inputs.values())
    if isinstance(inputs, (list, tuple)) and len(inputs) == 1:
        return inputs[0]
    return inputs


def _shown(shape: tuple[int | None, ...]) -> str:
    sides = ("any" if side is None else str(side) for side in shape[1:])
    return f"(batch, {', '.join(sides)})"
