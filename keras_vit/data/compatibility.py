"""Reasons why a model cannot be trained or evaluated on a data set."""

from typing import Any

from keras_vit.data.inspection import Inspected
from keras_vit.images.preprocessor import Preprocessor

_NAMED = 5


def incompatibilities(
    model: Any, preprocessor: Preprocessor, images: Inspected, min_size: int | None
) -> list[str]:
    """Returns the differences between model and data that prevent training or evaluation.

    Args:
        model: a `VisionTransformer`.
        preprocessor: the preprocessor of the data.
        images: the data set.
        min_size: smallest height and width in pixels; None for one patch of the model.

    Returns:
        One message per difference, with its remedy; an empty list if the data fit the model.
    """
    config, names = model.config, images.records.class_names
    problems = []
    for field in ("image_size", "channels"):
        asked, found = getattr(config, field), getattr(preprocessor, field)
        if asked is not None and asked != found:
            problems.append(
                f"the model takes {field}={asked}, the data are prepared for {field}={found}; "
                "give the model itself as preprocessor"
            )
    if preprocessor.scaled != model.preprocessor.scaled:
        problems.append(
            f"the model has rescale={config.rescale}, these data are prepared for the opposite; "
            "give the model itself as preprocessor"
        )
    if preprocessor.data_format != model.data_format:
        problems.append(
            f"the model takes {model.data_format}, the data are {preprocessor.data_format}"
        )
    if config.num_classes and config.num_classes != len(names):
        some = ", ".join(names[:_NAMED]) + (", ..." if len(names) > _NAMED else "")
        problems.append(
            f"the model has {config.num_classes} classes, the data {len(names)} ({some}); load the "
            f"model with num_classes={len(names)}"
        )
    least = config.patch_size if min_size is None else (min_size, min_size)
    small = [k for k, (h, w) in sorted(images.sizes.items()) if h < least[0] or w < least[1]]
    if small:
        height, width = images.sizes[small[0]]
        others = f", and {len(small) - 1} more are too small" if len(small) > 1 else ""
        problems.append(
            f"{images.records.where(small[0])} has {height}x{width} pixels{others}; expected at "
            f"least {least[0]}x{least[1]}, a patch. Leave them out, or accept them with min_size=1"
        )
    return problems
