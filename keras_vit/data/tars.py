"""Tar files in the form of WebDataset: files of one sample lie together and share their name."""

import dataclasses
import glob
import json
import os
import posixpath
import re
import tarfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Unpack, overload

import numpy as np

from keras_vit.data.image_data import ImageData
from keras_vit.data.options import Options, Prepares
from keras_vit.data.records import Encoded, Records, classes_of
from keras_vit.errors import ConfigError, listed

_HEADER = 512  # bytes before the contents of a file in a tar

Shards = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
"""A tar file, a pattern such as `train-*.tar` or `train-{000..146}.tar`, or a list of both."""


@overload
def from_webdataset(
    shards: Shards,
    preprocessor: Prepares,
    batch_size: int = ...,
    *,
    image: Sequence[str] = ...,
    label: str = ...,
    class_names: Sequence[str] | None = ...,
    validation_split: None = ...,
    **options: Unpack[Options],
) -> ImageData: ...
@overload
def from_webdataset(
    shards: Shards,
    preprocessor: Prepares,
    batch_size: int = ...,
    *,
    image: Sequence[str] = ...,
    label: str = ...,
    class_names: Sequence[str] | None = ...,
    validation_split: float,
    **options: Unpack[Options],
) -> tuple[ImageData, ImageData]: ...
def from_webdataset(
    shards: Shards,
    preprocessor: Prepares,
    batch_size: int = 32,
    *,
    image: Sequence[str] = ("jpg", "jpeg", "png", "webp"),
    label: str = "cls",
    class_names: Sequence[str] | None = None,
    validation_split: float | None = None,
    **options: Unpack[Options],
) -> ImageData | tuple[ImageData, ImageData]:
    """Returns the data set of tar files of this machine, read by number.

    The headers of the tar files are read once at the start, and give the place of each image.
    Shuffling is therefore over all images, not within a buffer, and a process reads the images of
    its share alone. Tar files of an address, which can only be read from their start, are for
    `from_stream`.

    Args:
        shards: a tar file, a pattern such as `"train-*.tar"` or `"train-{000..146}.tar"`, or
            a list of them; the files must not be compressed.
        preprocessor: a `keras_vit.Preprocessor`, or a `VisionTransformer`.
        batch_size: images per batch.
        image: suffixes of the image of a sample; each sample has one of them.
        label: suffix of the label, a number or a word; `"json:KEY"` for a value in the JSON of
            a sample.
        class_names: one name per class; None takes the labels of the model, the words that the
            labels are, or the numbers up to the largest.
        validation_split: share of the images, of each class alike, to hold out for validation;
            the function then returns (training, validation). See `ImageData.hold_out`.
        **options: optional arguments of `ImageData`.

    Raises:
        ConfigError: as `ImageData`; or a tar file is absent, damaged or compressed, or a sample
            lacks its image or label.
    """
    files = _files(shards)
    title = str(shards) if isinstance(shards, (str, os.PathLike)) else f"{files[0]} and others"
    suffix, _, key = label.partition(":")
    places, labels = [], []
    for number, file in enumerate(files):
        for place, content in _samples(file, set(image), suffix):
            places.append((number, *place))
            labels.append(_label(content, key, file))
    if not places:
        raise ConfigError(f"{title}: no sample with {listed(image)} in {len(files)} tar files.")
    values, names = classes_of(np.asarray(labels), class_names, preprocessor, title)
    records = Records(title, _Images(files, np.array(places, np.int64)), values, names)
    data = ImageData(records, preprocessor, batch_size, **options)
    return data if validation_split is None else data.hold_out(validation_split)


@dataclasses.dataclass(frozen=True)
class _Images(Sequence[Any]):
    """Encoded images at places `(images, 3)`: number of the tar file, first byte, bytes."""

    files: list[str]
    places: np.ndarray

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, index: Any) -> Any:
        file, start, size = self.places[int(index)].tolist()
        with Path(self.files[file]).open("rb") as tar:
            tar.seek(start - _HEADER)
            header, content = tar.read(_HEADER), tar.read(size)
        name = header[:100].rstrip(b"\0").decode(errors="replace")
        return Encoded(content, f"{self.files[file]}, {name}")


def _files(shards: Shards) -> list[str]:
    asked = [shards] if isinstance(shards, (str, os.PathLike)) else shards
    found: list[str] = []
    for pattern in [os.fspath(each) for each in asked]:
        if "://" in pattern:
            raise ConfigError(
                f"{pattern}: only tar files of this machine are read by number. Stream it: "
                "from_stream(datasets.load_dataset('webdataset', data_files=..., streaming=True), "
                "...)."
            )
        for name in _without_braces(pattern):
            # Path.glob takes no pattern that begins at the root.
            matches = sorted(glob.glob(name)) if glob.has_magic(name) else [name]  # noqa: PTH207
            if not matches:
                raise ConfigError(f"{name}: no file matches.")
            found += matches
    if not found:
        raise ConfigError("No tar file was given.")
    return list(dict.fromkeys(found))


def _without_braces(pattern: str) -> Iterable[str]:
    """Returns the names that WebDataset's braces stand for: `{000..146}` or `{a,b}`."""
    match = re.search(r"\{(?:(\d+)\.\.(\d+)|([^{}]*,[^{}]*))\}", pattern)
    if match is None:
        return [pattern]
    if match[3] is not None:
        inside = match[3].split(",")
    else:
        inside = [str(k).zfill(len(match[1])) for k in range(int(match[1]), int(match[2]) + 1)]
    parts = (f"{pattern[: match.start()]}{part}{pattern[match.end() :]}" for part in inside)
    return [name for part in parts for name in _without_braces(part)]


def _samples(file: str, images: set[str], label: str) -> Iterable[tuple[tuple[int, int], bytes]]:
    """Yields the image's place and the label's contents of each sample of a tar file."""
    name = ""
    found: dict[str, Any] = {}
    try:
        with tarfile.open(file, "r:") as tar:
            while True:
                member = tar.next()
                tar.members = []  # type: ignore[attr-defined]  # else all headers stay in memory
                if member is not None and not member.isfile():
                    continue
                of, suffix = ("", "") if member is None else _name_and_suffix(member.name)
                if found and of != name:
                    yield _sample(file, name, found)
                    found = {}
                if member is None:
                    return
                name = of
                if suffix in images:
                    if "image" in found:
                        raise ConfigError(f"{file}: sample {name} has two images.")
                    found["image"] = (member.offset_data, member.size)
                elif suffix == label:
                    content = tar.extractfile(member)
                    found["label"] = content.read() if content is not None else b""
    except (tarfile.TarError, EOFError) as error:
        raise ConfigError(
            f"{file}: not a readable tar file without compression ({error})."
        ) from error
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read ({error.strerror or error}).") from error


def _sample(file: str, name: str, found: dict[str, Any]) -> tuple[tuple[int, int], bytes]:
    for part in ("image", "label"):
        if part not in found:
            raise ConfigError(f"{file}: sample {name} has no {part}; name its suffix by {part}=.")
    return found["image"], found["label"]


def _name_and_suffix(path: str) -> tuple[str, str]:
    """Splits at the first dot of the file's name, as WebDataset does."""
    folder, base = posixpath.split(path)
    stem, _, suffix = base.partition(".")
    return posixpath.join(folder, stem), suffix.lower()


def _label(content: bytes, key: str, file: str) -> int | str:
    """Returns a number, or a word."""
    try:
        value = json.loads(content)[key] if key else content.decode().strip()
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{file}: a label cannot be read ({error!r}).") from error
    text = str(value)
    return int(text) if re.fullmatch(r"-?\d+", text) else text
