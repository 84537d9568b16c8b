"""Labelled images as a command names them: a folder, tfds:NAME or hf:NAME."""

from typing import Any

from keras_vit.errors import ConfigError


def labelled_images(
    source: str, preprocessor: Any, split: str | None = None, **options: Any
) -> Any:
    """Returns the `keras_vit.data.ImageData` that a word of the command line stands for.

    Args:
        source: a folder with a folder of images per class, `tfds:NAME` or `hf:NAME`.
        preprocessor: a `Preprocessor` or a `VisionTransformer`.
        split: of the latter two; None for `"test"`.
        **options: of `ImageData`.

    Raises:
        ConfigError: a split of a folder, or data that cannot be had.
    """
    from keras_vit.data import from_folder, from_huggingface, from_tfds

    kind, _, name = source.partition(":")
    if kind == "tfds":
        return from_tfds(name, preprocessor, split=split or "test", **options)
    if kind == "hf":
        return from_huggingface(name, preprocessor, split=split or "test", **options)
    if split is not None:
        raise ConfigError(
            f"{source}: a folder has no split {split!r}; name the folder of the part."
        )
    return from_folder(source, preprocessor, **options)
