"""The builders of the papers' fourteen Vision Transformers, such as `vit_b16`."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from keras_vit.images.class_names import ClassNames, Thresholds
from keras_vit.images.protocols import ProtocolSpec
from keras_vit.models.config import ImageSize
from keras_vit.models.config.variants import VARIANTS, Variant, variant_named

if TYPE_CHECKING:
    from keras_vit.models.vision_transformer import VisionTransformer


class Builder(Variant):
    """An architecture with a name; call it to build the model."""

    def __call__(
        self,
        image_size: ImageSize = 224,
        num_classes: int = 1000,
        *,
        dtype: Any = None,
        data_format: str | None = None,
        name: str | None = None,
        remat: bool = False,
        trainable: bool = True,
        class_names: ClassNames | None = None,
        protocol: ProtocolSpec = "paper",
        provenance: Mapping[str, Any] | None = None,
        thresholds: Thresholds | None = None,
        **fields: Any,
    ) -> "VisionTransformer":
        """Builds the model with fresh weights.

        Args:
            image_size: pixels, an int or a pair (height, width); `(None, None)` for any size.
            num_classes: width of the head; 0 for features.
            dtype, data_format, remat, trainable, class_names, protocol, provenance, thresholds: as
                for `VisionTransformer`.
            name: name of the model; None for the name of the variant.
            **fields: fields of `ViTConfig`.

        Raises:
            ConfigError: a field is invalid; the message names it and the valid values.
        """
        from keras_vit.models.vision_transformer import VisionTransformer  # starts a backend

        return VisionTransformer(
            self.config(image_size, num_classes, **fields),
            dtype=dtype,
            data_format=data_format,
            name=name or self.name,
            remat=remat,
            trainable=trainable,
            class_names=class_names,
            protocol=protocol,
            provenance=provenance,
            thresholds=thresholds,
        )


_BUILDERS = {name: Builder(name, row.fields) for name, row in VARIANTS.items()}
vit_ti16, vit_s16, vit_s32, vit_b8, vit_b16, vit_b32, vit_l16, vit_l32, vit_h14 = (
    builder for name, builder in _BUILDERS.items() if name.startswith("vit")
)
r_vit_ti16, r26_vit_s32, r26_vit_b32, r50_vit_b16, r50_vit_l32 = (
    builder for name, builder in _BUILDERS.items() if not name.startswith("vit")
)


def list_variants() -> list[str]:
    """Returns the names of all variants, plain Vision Transformers first."""
    return list(_BUILDERS)


def variant(name: str) -> Builder:
    """Returns the builder of the variant of that name.

    Raises:
        ConfigError: the name is unknown; the message states the nearest name.
    """
    return _BUILDERS[variant_named(name).name]
