"""Data, tensor and fully sharded parallelism: divides weights and images among JAX devices.

`keras_vit.config.weights.lexicon` states the axes of each weight, which decide how it is divided.

The mesh of devices has an axis "batch", which divides the images of a batch, an axis "model", or
both. Tensor parallelism divides the axes num_heads and mlp_dim of the weights along "model", as in
Megatron-LM (Shoeybi et al. 2019, section 3): a block then needs two sums over devices. A fully
sharded model also divides every weight along "batch", as in ZeRO (Rajbhandari et al. 2020, stage
3); XLA gathers a weight where a block needs it. Momentum, averages and accumulated gradients are
divided like their weight.
"""

from collections.abc import Sequence
from typing import Any

import keras

from keras_vit.config.weights.lexicon import AXES, LEXICON
from keras_vit.config.weights.templates import matcher
from keras_vit.errors import ConfigError

BATCH, MODEL = "batch", "model"
"""Names of the axes of a mesh."""

_DIVIDED = ("h", "f")
_WORDS = [(matcher(word.path), word.axes.split()) for word in LEXICON]


def data_parallel(devices: Sequence[str] | None = None) -> Any:
    """Data parallelism: each device has a copy of the model and computes a part of each batch.

        keras.distribution.set_distribution(keras_vit.distribution.data_parallel())
        model = keras_vit.VisionTransformer.from_preset(...)

    A distribution applies to models that are made after it is set.

    Args:
        devices: names of `keras.distribution.list_devices()`; None for all devices.

    Raises:
        ConfigError: the backend is not JAX.
    """
    return keras.distribution.DataParallel(devices=_devices(devices), auto_shard_dataset=False)


def tensor_parallel(shards: int | None = None, devices: Sequence[str] | None = None) -> Any:
    """Tensor parallelism: groups of devices divide the attention heads and MLPs of a model.

    Args:
        shards: devices that share one copy of the model; None for all devices. Eight devices with
            `shards=4` have two copies, and each copy takes half of a batch.
        devices: names of `keras.distribution.list_devices()`; None for all devices.

    Raises:
        ConfigError: `shards` does not divide the number of devices, or the backend is not JAX;
            when a model is made, that `shards` does not divide its num_heads or mlp_dim.
    """
    return _Sharded(_mesh(devices, shards), fully_sharded=False)


def fully_sharded(shards: int = 1, devices: Sequence[str] | None = None) -> Any:
    """Fully sharded data parallelism: all devices divide the weights and the optimizer state.

    Args:
        shards: devices that also divide the heads and MLPs, as in `tensor_parallel`; 1 for no
            tensor parallelism.
        devices: names of `keras.distribution.list_devices()`; None for all devices.

    Raises:
        ConfigError: `shards` does not divide the number of devices, or the backend is not JAX;
            when a model is made, that `shards` does not divide its num_heads or mlp_dim.
    """
    return _Sharded(_mesh(devices, shards), fully_sharded=True)


def divided_axes(
    path: str, shape: tuple[int, ...], sizes: dict[str, int], fully_sharded: bool
) -> tuple[str | None, ...]:
    """Returns the mesh axis that divides each axis of a weight, or None.

    Args:
        path: path of the weight. A weight that the lexicon lacks is only divided along "batch".
        shape: shape of the weight.
        sizes: `{axis of the mesh: devices along it}`.
        fully_sharded: whether "batch" divides the longest of the other axes that it can divide.

    Raises:
        ConfigError: the axis "model" of the mesh does not divide num_heads or mlp_dim.
    """
    divided: list[str | None] = [None] * len(shape)
    letters = _find_axes(path)
    by_model = sizes.get(MODEL, 1)
    if len(letters) == len(shape) and by_model > 1:
        for k, letter in enumerate(letters):
            if letter in _DIVIDED:
                if shape[k] % by_model:
                    raise ConfigError(
                        f"{path}: the mesh has {by_model} devices along its axis {MODEL!r}, which "
                        f"do not divide {AXES[letter].words}={shape[k]}."
                    )
                divided[k] = MODEL
    by_batch = sizes.get(BATCH, 1)
    if fully_sharded and by_batch > 1:
        free = [k for k, axis in enumerate(divided) if axis is None and shape[k] % by_batch == 0]
        if free:
            divided[max(free, key=lambda k: shape[k])] = BATCH
    return tuple(divided)


class _Sharded(keras.distribution.ModelParallel):
    """A distribution that derives the layout of each weight of any model from its path."""

    def __init__(self, mesh: Any, fully_sharded: bool) -> None:
        layouts = keras.distribution.LayoutMap(mesh)
        super().__init__(layout_map=layouts, batch_dim_name=BATCH, auto_shard_dataset=False)
        self.fully_sharded = fully_sharded
        self._sizes = dict(zip(mesh.axis_names, map(int, mesh.shape), strict=True))

    def get_variable_layout(self, variable: Any) -> Any:
        """Returns the layout of a new variable; called by Keras."""
        layout = super().get_variable_layout(variable)
        if any(layout.axes) or "float" not in str(variable.dtype):
            return layout  # an optimizer's variable has the layout of its weight
        axes = divided_axes(variable.path, tuple(variable.shape), self._sizes, self.fully_sharded)
        return keras.distribution.TensorLayout(axes, self.device_mesh)


def _find_axes(path: str) -> list[str]:
    """Returns the letters of a weight's axes in the lexicon; empty for a weight that it lacks."""
    parts = path.split("/")
    for start in range(len(parts)):  # the path may begin with the name of a surrounding model
        name = "/".join(parts[start:])
        for match, axes in _WORDS:
            if match(name) is not None:
                return axes
    return []


def _mesh(devices: Sequence[str] | None, shards: int | None) -> Any:
    names = _devices(devices)
    shards = len(names) if shards is None else shards
    if shards < 1 or len(names) % shards:
        raise ConfigError(
            f"shards={shards}: expected a number that divides the {len(names)} devices."
        )
    return keras.distribution.DeviceMesh((len(names) // shards, shards), (BATCH, MODEL), names)


def _devices(devices: Sequence[str] | None) -> list[str]:
    """Returns the given devices, or all; raises `ConfigError` on other backends than JAX."""
    backend = keras.backend.backend()
    if backend != "jax":
        other = {
            "tensorflow": "make the model under tf.distribute.MirroredStrategy().scope()",
            "torch": "call keras_vit.distribution.ddp(model) under torchrun",
        }.get(backend, "choose it by KERAS_BACKEND")
        raise ConfigError(f"keras.distribution is only for JAX; on {backend}, {other}.")
    return list(devices or keras.distribution.list_devices())
