"""transformers' image model of FLAVA (arXiv 2112.04482), alone or inside of FLAVA."""

from keras_vit.checkpoints.dialects.transformers import vit

FAMILIES = (
    vit.family_with_blocks(
        "flava_image_model",
        "image_model.",
        (None, "FlavaImageModel"),
        vit.POOLER,
        prefixes=("", "image_model.", "flava.image_model."),
        ignored={r".*embeddings\.mask_token": vit.MASK},
        only_read="an image model without the text and multimodal models of Flava",
    ),
)
