"""Loads checkpoints into the class `VisionTransformer`."""

import dataclasses
import os
from typing import TYPE_CHECKING, Any, Unpack

from keras_vit.config import ImageSize
from keras_vit.models.building import Reading
from keras_vit.presets.source import Source

if TYPE_CHECKING:
    from keras_vit.models.vision_transformer import VisionTransformer


def load_to_answer(
    source: str | os.PathLike[str] | Source,
    dtype: Any = None,
    image_size: ImageSize = None,
    pixel_range: tuple[float, float] | None = None,
    draft: bool = False,
) -> "VisionTransformer":
    """Returns the model of a source, for a command, a server or a worker.

    Args:
        source, dtype: as for `VisionTransformer.from_preset`.
        image_size: see `ImageSize`.
        pixel_range: values of black and white in images of more than 8 bits, see `Preprocessor`.
        draft: whether large JPEG files are decoded at a part of their size, see `Preprocessor`.

    Raises:
        PresetError, CheckpointError, ConfigError: as `VisionTransformer.from_preset`.
    """
    model = load(source, dtype=dtype, image_size=image_size)
    if pixel_range is not None or draft:
        model.preprocessor = dataclasses.replace(
            model.preprocessor, pixel_range=pixel_range, draft=draft
        )
    return model


def load(
    source: str | os.PathLike[str] | Source,
    *,
    num_classes: int | None = None,
    image_size: ImageSize = None,
    load_weights: bool = True,
    **arguments: Unpack[Reading],
) -> "VisionTransformer":
    """Builds the model that a checkpoint or preset holds, with its weights and arithmetic.

    Names, shapes and types of all arrays are checked before the model is built, and
    every number must be finite. Arrays are read one at a time. Files of a folder
    are opened once, before any array is read, so that a model never mixes two states of it.

    Args:
        source: a file of weights, a folder as its library writes it, or another source of
            `VisionTransformer.from_preset`.
        num_classes: None keeps the file's head. Another number than the file's makes a head
            with zero weights; 0 leaves the head out.
        image_size: pixels, an int or a pair (height, width); position embeddings are
            resized. None for the size in the file, `(None, None)` for a model that
            takes any size per call.
        load_weights: False for the architecture with fresh weights.
        family: name of the format to read the file as, if its names are ambiguous.
        variant: name of the variant that the file must be.
        position_grid: (rows, columns) of the patches that the stored positions are for, if they are
            no square or fit two grids.
        checksum: whether to compare a preset's weights with the sha256 in its `config.json`.
        allow_pickle_weights: whether weights may be a pickle of torch (`.bin`, `.pth`), which
            `torch.load(weights_only=True)` of torch 2.7 or newer reads; see SECURITY.md.
        prefix: start of the names of the arrays to read, if a file holds several Vision
            Transformers. None finds it; a line of log says what is left out.
        weights: `"ema"` for the average of the weights over the training, `"raw"` for the weights
            themselves, if a training has both; None takes the average, and says so.
        dataset_index: number of the data set whose expert is read, if the MLPs of a file are
            mixtures with an expert per data set (ViTPose+). None takes the first one, and a line of
            log says so.
        ignore: names of arrays to leave out, or patterns such as `"decoder.*"`.
        timm: arguments of `timm.create_model` by name, as the card of a model prints them, in place
            of the JSON beside a file, or above it: `{"architecture": "vit_giant_patch14_224",
            "mlp_layer": "SwiGLUPacked", "reg_tokens": 8}`. `architecture`, or `model_name`, may be
            left out, or name a repository (`"hf-hub:owner/name"`), where a `config.json` beside the
            weights states it. Classes are given as such (`timm.layers.SwiGLUPacked`,
            `torch.nn.SiLU`) or by their names; `mean`, `std`, `interpolation`, `crop_pct` and
            `crop_mode` prepare images; `num_classes=0` leaves the head out. `pretrained`,
            `dynamic_img_size`, dropout rates and the like have no effect. An argument that timm's
            class lacks, or that the arrays contradict, is refused by its name.
        **arguments: other arguments of `VisionTransformer`; None for `class_names`, `protocol`,
            `provenance` and `thresholds` takes the files' values. A caller may change
            `representation_size` to None (which leaves the layer out), the dropout rates,
            `numerics` (a dict changes the numerics that it names), and `pooling` between its
            pooled and unpooled form. Any other field must agree with the file. Another
            `patch_size` resizes the projection of patches as FlexiViT does
            (`adapt.resize_patches`) and, with them, the positions.

    Raises:
        CheckpointError: arrays do not fit; the message names the file and each such array.
        ConfigError: the fields are invalid together.
    """
    from keras_vit.models.vision_transformer import VisionTransformer  # starts a backend

    return VisionTransformer.from_preset(
        source,
        num_classes=num_classes,
        image_size=image_size,
        load_weights=load_weights,
        **arguments,
    )
