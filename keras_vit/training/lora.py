"""Low-rank adaptation (Hu et al. 2021, arXiv 2106.09685) through Keras's own `enable_lora`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from keras_vit.config.rules import POSITIVE
from keras_vit.errors import ConfigError, expect_model
from keras_vit.layers.quantisation import parts_with_kernels
from keras_vit.training.trainable import train_only

if TYPE_CHECKING:
    from keras_vit.models.vision_transformer import VisionTransformer

PROJECTIONS = (
    "attention/query",
    "attention/key",
    "attention/value",
    "attention/out",
    "mlp/dense_0",
    "mlp/gate",
    "mlp/value",
    "mlp/dense_1",
)
"""Parts of a block that can be adapted; an MLP with a gate has `gate` and `value` for `dense_0`."""


def enable_lora(
    model: "VisionTransformer",
    rank: int,
    targets: Sequence[str] | None = ("attention/query", "attention/value"),
    alpha: float | None = None,
) -> int:
    """Adds low-rank adapters (LoRA) to every block; only they and the head stay trainable.

    Each kernel W becomes W + alpha / rank * A B. B starts at zero, so the outputs do not change at
    first. Call the function before `compile`. `.keras` files hold the adapters merged into the
    kernels; call `merge_lora` before writing presets or files of other libraries.

    Args:
        model: a `VisionTransformer`.
        rank: r in the paper: number of columns of A and rows of B.
        targets: names from `PROJECTIONS`; the default is query and value, as in the paper's
            experiments. None adapts all projections of the model.
        alpha: scale in the paper; None for `rank`.

    Returns:
        The number of trainable parameters.

    Raises:
        ConfigError: a target is unknown, the model has adapters already, or `rank` is not positive.
    """
    POSITIVE.check("lora_rank", rank)
    names = list(dict.fromkeys(path.split("/", 1)[1] for path in _projections(model)))
    targets = names if targets is None else targets
    unknown = [target for target in targets if target not in names]
    if unknown or not targets:
        raise ConfigError(f"LoRA targets {unknown}: expected some of {', '.join(names)}.")
    if adapted := [path for path, layer in _projections(model).items() if layer.lora_enabled]:
        raise ConfigError(f"{adapted[0]} is adapted already; use merge_lora(model) first.")
    for path, layer in _projections(model).items():
        if path.split("/", 1)[1] in targets:
            layer.enable_lora(rank, lora_alpha=alpha)
    lora = [w.path for w in model.weights if w.name.startswith("lora_kernel")]
    return train_only(model, [*lora, *(["head"] if model.config.num_classes else [])])


def merge_lora(model: "VisionTransformer") -> "VisionTransformer":
    """Merges LoRA into the kernels, `W + alpha / rank * A B`; returns a model without adapters."""
    from keras_vit.models.vision_transformer import VisionTransformer

    merged = VisionTransformer.from_config(expect_model(model).get_config())
    adapted = {weight.path: weight for weight in model.weights}
    for weight in merged.weights:
        weight.assign(adapted[weight.path])
    parts = dict(parts_with_kernels(merged.layers))
    for path, layer in parts_with_kernels(model.layers):  # Keras adapts the head too
        stored: dict[str, Any] = {}
        layer.save_own_variables(stored)  # the kernel with LoRA's addition, quantised if it is
        parts[path].load_own_variables(stored)
    return merged


def _projections(model: "VisionTransformer") -> dict[str, Any]:
    """Returns `{path: layer}` of every Dense and EinsumDense in the blocks."""
    return {
        path: layer
        for path, layer in parts_with_kernels(expect_model(model).layers)
        if path.startswith("block_") and path.partition("/")[2] in PROJECTIONS
    }
