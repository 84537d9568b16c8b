"""A user's images as the graph of an export takes them."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from keras_vit.exporting.plan import ExportPlan
from keras_vit.images.inputs import images_in
from keras_vit.images.preprocessor import Preprocessor


def graph_inputs(preprocessor: Preprocessor, plan: ExportPlan, images: Any) -> Iterator[np.ndarray]:
    """Yields images as the graph takes them, one array each, without a batch axis.

    Args:
        preprocessor: of the model, at the plan's size.
        plan: of the export.
        images: of any kind that the preprocessor takes.

    Raises:
        ConfigError: an image cannot be read.
    """
    for image in images_in(images, preprocessor.channels):
        picture = preprocessor.decode(image.source)
        if plan.prepares == "resize":
            array = np.asarray(picture)
            array = array[..., None] if array.ndim == 2 else array
        else:
            array = preprocessor.resize(picture)
            array = preprocessor.scale(array) if plan.prepares == "nothing" else array
        array = np.moveaxis(array, -1, 0) if plan.channels_first else array
        yield np.asarray(array, plan.input_dtype)
