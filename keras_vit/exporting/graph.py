"""The function that is exported: images in, probabilities out."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from keras import ops

from keras_vit.errors import ExportError, listed
from keras_vit.exporting import pixels
from keras_vit.exporting.plan import ExportPlan
from keras_vit.images.inputs import images_in
from keras_vit.images.resampling import read_pixels
from keras_vit.layers.quantisation import quantised_parts
from keras_vit.models.inference import as_float32
from keras_vit.models.losses import per_class

if TYPE_CHECKING:
    from keras_vit.models.vision_transformer import VisionTransformer


_STAGES = {"features": "pre_logits", "logits": "logits"}


class ExportGraph:
    """The exported computation: preparation of the images, model, and form of the outputs.

    Args:
        model: a `VisionTransformer`.
        plan: the plan of the export.
    """

    def __init__(self, model: "VisionTransformer", plan: ExportPlan) -> None:
        self.plan = plan
        self.model = model
        self._takes_channels_first = model.data_format == "channels_first"
        has_activation = model.prediction.classifier_activation is not None
        self._stages: list[str] = []
        if plan.outputs == "features" or (plan.outputs == "logits" and has_activation):
            self._stages = [_STAGES[plan.outputs]]
        model._check_stages(self._stages)
        if plan.outputs == "probabilities" and not has_activation:
            if model.config.dense is None:
                model.config.demand_prediction("outputs='probabilities'")
            model.prediction.demand_classes("outputs='probabilities'")

    def __call__(self, images: Any) -> Any:
        """Returns the output of a batch, whose shape is the plan's `input_shape`."""
        prepared = self._prepare(images)
        if self._stages:
            (output,) = self.model(prepared, training=False, stages=self._stages).values()
            return output
        return self._finish(self.model(prepared, training=False))

    def answers(self, images: np.ndarray) -> np.ndarray:
        """Returns the outputs of the original model for the same images, float32."""
        prepared = as_float32(self._prepare(ops.convert_to_tensor(images)))
        outputs = self.model.inference.run(self.model, prepared, self._stages)
        if self._stages:
            return outputs[self._stages[0]]
        return as_float32(self._finish(outputs))

    def _finish(self, outputs: Any) -> Any:
        prediction = self.model.prediction
        if self.plan.outputs != "probabilities":
            return outputs
        answers = per_class(outputs, prediction, ops=ops)
        normalise = ops.sigmoid if prediction.task == "multi_label" else ops.softmax
        return normalise(answers) if prediction.returns_logits else answers

    def facts(self) -> dict[str, Any]:
        """Returns the labels, protocol and provenance of the model, as plain JSON types."""
        return {
            "class_names": None if self.model.class_names is None else list(self.model.class_names),
            "protocol": self.model.preprocessor.protocol,
            "provenance": dict(self.model.provenance),
            **({} if self.model.thresholds is None else {"thresholds": self.model.thresholds}),
        }

    def refuse_quantised(self, mode: str, runtime: str) -> None:
        """Refuses a model that `quantize(mode)` has changed, for a runtime that cannot compute it.

        Raises:
            ExportError: the model has parts of this mode; the message lists them.
        """
        parts = quantised_parts(self.model.layers)
        if refused := [name for name, part in parts.items() if part["mode"] == mode]:
            raise ExportError(
                f"format={self.plan.format!r}: the model is quantised to {mode} ({listed(refused)}"
                f"), which {runtime} cannot run. Export it before quantize(); precision='int8' "
                "quantises the exported model."
            )

    def inputs(self, images: Any) -> Iterator[np.ndarray]:
        """Yields a batch for each of a user's images, which fills the batch with copies.

        Args:
            images: images of any kind that the model's preprocessor takes.

        Raises:
            ConfigError: an image cannot be read.
        """
        preprocessor, plan = self.model.preprocessor, self.plan
        for image in images_in(images, preprocessor.channels):
            picture = preprocessor.decode(image.source)
            if plan.prepares == "resize":
                array = read_pixels(picture)
            else:
                array = preprocessor.resize(picture)
                array = preprocessor.scale(array) if plan.prepares == "nothing" else array
            yield np.stack([np.asarray(array, plan.input_dtype)] * (plan.batch or 1))

    def _prepare(self, images: Any) -> Any:
        plan = self.plan
        if plan.prepares == "nothing" and not self._takes_channels_first:
            return images
        images = ops.transpose(images, (0, 3, 1, 2))
        if plan.prepares == "nothing":
            return images
        images = ops.cast(images, "float32")
        if plan.prepares == "resize" and plan.config.image_size is not None:
            images = pixels.resize(images, plan.config.image_size, plan.protocol)
        images = images if plan.rescale else pixels.scale(images, plan.protocol)
        return images if self._takes_channels_first else ops.transpose(images, (0, 2, 3, 1))
