"""The stem of a model: the layers from images to projected patches (Eq. 1)."""

from collections.abc import Callable
from typing import Any

from keras_vit import layers
from keras_vit.config import ViTConfig
from keras_vit.errors import ConfigError
from keras_vit.layers.packed_patches import UnpackPatches

Keep = Callable[[str, Any], Any]
"""Takes the name and value of a stage, and returns the value for the next layer."""


class ImageStem:
    """The stem for images of one size or of any size; that of a hybrid is a ResNet (section 3.1).

    Args:
        config: configuration of the model.
        data_format: `"channels_last"` or `"channels_first"`.
        policy: dtype policy of the model.
        normalisation: mean and std of pixels in [0, 1], for a model that rescales, or None.
    """

    def __init__(
        self, config: ViTConfig, data_format: str, policy: Any, normalisation: Any
    ) -> None:
        self.resizes_positions = config.grid != config.source_grid
        patch_embedding = layers.PatchEmbedding(
            config.hidden_size,
            config.patch_size,
            flatten=False,
            data_format=data_format,
            use_bias=config.patch_bias,
            dtype=policy,
            name="patch_embedding",
        )
        self.layers = [*_resnet(config, data_format, policy), patch_embedding]
        if normalisation is not None:
            mean, std = normalisation
            rescale = layers.Rescale(mean, std, data_format, dtype=policy, name="rescale")
            self.layers.insert(0, rescale)

    def __call__(self, images: Any, keep: Keep) -> tuple[Any, dict[str, Any], dict[str, Any]]:
        """Computes the projected patches of images.

        Args:
            images: the input of the model.
            keep: called with the output of each layer.

        Returns:
            The projected patches `(batch, rows, columns, hidden_size)`; arguments for
            `AddPositionEmbs`; and arguments for every block and the pooling.
        """
        grid = images
        for layer in self.layers:
            grid = keep(layer.name, layer(grid))
        return grid, {"patches": grid} if self.resizes_positions else {}, {}


class PackedStem(ImageStem):
    """The stem for packed patches of images that keep their aspect ratio (NaFlex)."""

    def __init__(
        self, config: ViTConfig, data_format: str, policy: Any, normalisation: Any
    ) -> None:
        super().__init__(config, "channels_last", policy, normalisation)
        sizes = (config.patch_size, config.channels, config.num_prefix_tokens)
        self.unpack = UnpackPatches(*sizes, dtype="float32", name="unpack_patches")

    def __call__(self, images: Any, keep: Keep) -> tuple[Any, dict[str, Any], dict[str, Any]]:
        """As `ImageStem`; the arguments are the position of each patch and the mask of padding."""
        pixels, places, mask = self.unpack(images)
        grid, _, _ = super().__call__(pixels, keep)
        return grid, {"places": places}, {"mask": mask}


def choose_stem(config: ViTConfig) -> type[ImageStem]:
    """Returns the class of the stem for a configuration."""
    return PackedStem if config.stem.is_packed else ImageStem


def image_shape(config: ViTConfig, data_format: str) -> tuple[int | None, ...]:
    """Returns the shape of an image, without the batch, or of its packed patches."""
    if config.stem.is_packed:
        if config.image_size is None:
            raise ConfigError(
                "stem.kind='packed' needs an image_size, which sets the largest number of patches "
                "per image; found image_size=(None, None)."
            )
        return config.packed_shape
    height, width = config.image_size or (None, None)
    if data_format == "channels_last":
        return height, width, config.channels
    return config.channels, height, width


def _resnet(config: ViTConfig, data_format: str, policy: Any) -> list[Any]:
    """Returns the layers of a hybrid's ResNet (section 3.1), in the order of their calls."""
    stem = config.stem
    if not stem.is_resnet:
        return []
    common = {"arithmetic": stem.kind, "data_format": data_format, "dtype": policy}
    root = layers.ResNetRoot(stem.width, **common, name="root")
    units = (
        layers.BottleneckUnit(unit.filters, unit.strides, **common, name=unit.name)
        for unit in stem.list_units()
    )
    return [root, *units]
