"""Builders of the fourteen Vision Transformers of the papers, such as `vit_b16`."""

from typing import TYPE_CHECKING, Any, Unpack

from keras_vit.config import ImageSize
from keras_vit.config.variants import VARIANTS, Variant, variant_named
from keras_vit.models.building import Arguments, Building

if TYPE_CHECKING:
    from keras_vit.models.vision_transformer import VisionTransformer


class Builder(Variant):
    """A named architecture; call it to build the model with new, random weights."""

    def __call__(
        self,
        image_size: ImageSize = 224,
        num_classes: int = 1000,
        **arguments: Unpack[Arguments],
    ) -> "VisionTransformer":
        """Builds the model with new, random weights.

        Args:
            image_size: pixels, an int or a pair (height, width); `(None, None)` for any size.
            num_classes: width of the head; 0 for a model that returns features.
            **arguments: further arguments of `VisionTransformer`, such as `dtype` and
                `dropout_rate`.

        Raises:
            ConfigError: a field is invalid; the message names it and the valid values.
        """
        from keras_vit.models.vision_transformer import VisionTransformer  # starts a backend

        building: Any = {k: v for k, v in arguments.items() if k in Building.__annotations__}
        fields = {k: v for k, v in arguments.items() if k not in building}
        return VisionTransformer(self.config(image_size, num_classes, **fields), **building)


_BUILDERS = {name: Builder(name, row.fields) for name, row in VARIANTS.items()}
vit_ti16, vit_s16, vit_s32, vit_b8, vit_b16, vit_b32, vit_l16, vit_l32, vit_h14 = (
    builder for name, builder in _BUILDERS.items() if name.startswith("vit")
)
r_vit_ti16, r26_vit_s32, r26_vit_b32, r50_vit_b16, r50_vit_l32 = (
    builder for name, builder in _BUILDERS.items() if not name.startswith("vit")
)


def list_variants() -> list[str]:
    """Lists the names of all builders, plain Vision Transformers first."""
    return list(_BUILDERS)


def variant(name: str) -> Builder:
    """Returns the builder with this name.

    Raises:
        ConfigError: the name is unknown; the message gives the nearest name.
    """
    return _BUILDERS[variant_named(name).name]
