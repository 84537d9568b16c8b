"""The interface of a place with files: a local folder, the Hub or the official bucket."""

import dataclasses
from collections.abc import Mapping
from io import BufferedReader
from typing import Any

from keras_vit.errors import KerasViTError


@dataclasses.dataclass(frozen=True)
class Header:
    """Names, types and shapes of the arrays of a safetensors file that was not downloaded.

    Args:
        name: address of the file, for messages.
        arrays: name of an array -> (safetensors's word for its type, its shape).
    """

    name: str
    arrays: Mapping[str, tuple[str, tuple[int, ...]]]


class Location:
    """A folder on this machine, on the Hub or in the bucket, or one file of it.

    Attributes:
        address: address of the place, for messages.
        is_file: whether the place is a single file.
        files: file name -> size in bytes, or None if unknown; without files in subfolders.
        provenance: origin of the files, as plain JSON types.
        pickle_advice: advice for messages if the weights are a pickle.
        note: sentence for messages about missing files: why the list may be incomplete.
    """

    address: str
    is_file = True
    files: Mapping[str, int | None]
    provenance: Mapping[str, Any] = {}
    pickle_advice = note = ""

    def folder_advice(self) -> str:
        """Returns advice for a folder without weights."""
        return "If they are in a subfolder, name it."

    def open(self, name: str) -> BufferedReader:
        """Opens a file, after a download if necessary; its `name` is a path for messages.

        Raises:
            FileNotFoundError: the file was removed, or is a broken link.
        """
        raise NotImplementedError

    def header(self, name: str) -> Header | None:
        """Returns the header of a weight file without its arrays; None if that is not possible."""
        return None

    def is_current(self) -> bool:
        """Whether the address still leads to this place, which may have been replaced."""
        return True

    def close(self) -> None:
        """Releases the place; files that were opened stay open."""


def refuse_pointer(name: object, head: bytes, error: type[KerasViTError]) -> None:
    """Raises `error` if a file is a pointer of git-lfs instead of the file itself."""
    if head.startswith(b"version "):
        raise error(
            f"{name}: this is a pointer of git-lfs instead of the weights. Run `git lfs pull`, or "
            "download the file itself."
        )
