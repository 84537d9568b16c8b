"""The function that an export writes down: images in, probabilities out."""

from typing import TYPE_CHECKING, Any

import numpy as np
from keras import ops

from keras_vit.exporting import pixels
from keras_vit.exporting.plan import ExportPlan
from keras_vit.inference import as_float32

if TYPE_CHECKING:
    from keras_vit.model import VisionTransformer


class ExportGraph:
    """A model with what stands before it and behind it, by a plan.

    Args:
        model: a `VisionTransformer`.
        plan: of the export.
    """

    def __init__(self, model: "VisionTransformer", plan: ExportPlan) -> None:
        self.plan = plan
        self.data_format = model.data_format
        self.model = model
        self._stage = _stage_of(model, plan.outputs)
        is_logit = model.config.classifier_activation is None
        self._adds_softmax = plan.outputs == "probabilities" and is_logit

    def __call__(self, images: Any) -> Any:
        """Returns the outputs of a batch; `images` as the plan's `input_shape` says."""
        prepared = self._prepared(images)
        if self._stage is None:
            outputs = self.model(prepared, training=False)
        else:
            outputs = self.model(prepared, training=False, stages=[self._stage])[self._stage]
        return ops.softmax(outputs, axis=-1) if self._adds_softmax else outputs

    def _prepared(self, images: Any) -> Any:
        plan = self.plan
        takes_channels_first = self.data_format == "channels_first"
        if plan.prepares == "nothing":
            if plan.channels_first == takes_channels_first:
                return images
            order = (0, 2, 3, 1) if plan.channels_first else (0, 3, 1, 2)
            return ops.transpose(images, order)
        images = images if plan.channels_first else ops.transpose(images, (0, 3, 1, 2))
        images = ops.cast(images, "float32")
        if plan.prepares == "resize" and plan.image_size is not None:
            images = pixels.resized(images, plan.image_size, plan.protocol)
        images = pixels.scaled(images, plan.protocol) if plan.scaled else images
        return images if takes_channels_first else ops.transpose(images, (0, 2, 3, 1))

    def answers(self, images: np.ndarray) -> np.ndarray:
        """Returns what the model itself answers by its inference function, float32."""
        prepared = as_float32(self._prepared(ops.convert_to_tensor(images)))
        stages = [] if self._stage is None else [self._stage]
        outputs = self.model.inference.run(self.model, prepared, stages)
        outputs = outputs if self._stage is None else outputs[self._stage]
        return as_float32(ops.softmax(outputs, axis=-1)) if self._adds_softmax else outputs


def _stage_of(model: "VisionTransformer", outputs: str) -> str | None:
    """Returns the stage of the model that an export returns, or None for the model's output."""
    if outputs == "features":
        return "pre_logits"
    if outputs == "logits" and model.config.classifier_activation is not None:
        return "logits"
    return None
