"""Inference on torch: a call without gradients, of any number of images."""

from typing import Any

import keras
import numpy as np
import torch

from keras_vit import inference


def padded_size(count: int, batch_size: int) -> int:
    """Returns the size of the batch that computes `count` images; no padding is needed."""
    return count


class Program:
    """A call of a model; see `keras_vit.inference`."""

    def __init__(self, owner: Any, model: keras.Model, stages: tuple[str, ...]) -> None:
        self._model, self._stages = model, stages

    def __call__(self, images: np.ndarray) -> dict[str, np.ndarray]:
        # Not torch.inference_mode: users' layers may keep a tensor and need its gradient later.
        with torch.no_grad():
            values = inference.call(self._model, keras.ops.convert_to_tensor(images), self._stages)
        return {name: inference.as_float32(value) for name, value in values.items()}
