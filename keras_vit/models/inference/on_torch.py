"""Inference on PyTorch: a call without gradients, for any number of images."""

from typing import Any

import keras
import numpy as np
import torch

from keras_vit import kernels
from keras_vit.kernels.torch_products import is_transformed
from keras_vit.layers import torch_block
from keras_vit.models import inference


def padded_size(count: int, batch_size: int) -> int:
    """Returns the batch size for `count` images; PyTorch does not need padding."""
    return count


class Program:
    """A call of a model; see `keras_vit.models.inference`."""

    def __init__(self, owner: Any, model: keras.Model, stages: tuple[str, ...]) -> None:
        self._owner, self._model, self._stages = owner, model, stages

    def __call__(self, images: np.ndarray) -> dict[str, np.ndarray]:
        # Not torch.inference_mode: users' layers may store a tensor and need its gradient later.
        with torch.no_grad(), torch_block.using(self._blocks()):
            values = inference.call(self._model, keras.ops.convert_to_tensor(images), self._stages)
        return {name: inference.as_float32(value) for name, value in values.items()}

    def _blocks(self) -> dict[Any, torch_block.BlockFunction]:
        is_plain = not (torch.is_autocast_enabled("cpu") or is_transformed())
        if not is_plain or not kernels.have_whole_block:
            return {}
        with self._owner.lock:
            values = [weight.value for weight in self._owner.weights]
            kept = self._owner.kept
            if kept is None or not kept.has(values):
                kept = self._owner.kept = _KeptBlocks(self._model, values)
            return kept.blocks


class _KeptBlocks:
    """The functions of a model's blocks, and marks that show whether its weights have changed.

    torch counts the in-place changes of a tensor, except those through `tensor.data`. A sample of
    the values detects most of these; `model.compile()` makes all weights be read again.
    """

    def __init__(self, model: keras.Model, values: list[Any]) -> None:
        self._values, self._marks = values, list(map(_mark, values))
        self.blocks = torch_block.kept_blocks(model.layers)
        has_copies = any(block.has_copies for block in self.blocks.values())
        watched = [x for x in values if x.is_floating_point() and x.is_contiguous()]
        self._some = [x.view(-1)[:: x.numel() // 64 + 1] for x in watched] if has_copies else []
        self._sample = torch.cat(self._some) if has_copies else None

    def has(self, values: list[Any]) -> bool:
        """Whether the functions have these weights."""
        return (
            inference.are_same(values, self._values)
            and list(map(_mark, values)) == self._marks
            and (self._sample is None or torch.equal(torch.cat(self._some), self._sample))
        )


def _mark(value: Any) -> tuple[int, int]:
    """Returns the memory address of a tensor and torch's count of its in-place changes."""
    return value.data_ptr(), 0 if value.is_inference() else value._version
