"""How much a file from a stranger may ask for. A file that asks for more is refused unread.

Each limit is far above what a Vision Transformer needs. An environment variable raises it, for a
process that reads larger files on purpose. SECURITY.md lists them.
"""

import dataclasses
import os

from keras_vit.errors import ConfigError, KerasViTError


@dataclasses.dataclass(frozen=True)
class Limit:
    """A number that can be changed by an environment variable.

    Args:
        variable: of the environment.
        default: where the variable is not set.
        of: what the number counts, for messages.
    """

    variable: str
    default: int
    of: str

    @property
    def value(self) -> int:
        """The number that holds now.

        Raises:
            ConfigError: the variable is no positive integer.
        """
        stated = os.environ.get(self.variable)
        if stated is None:
            return self.default
        if not stated.isdecimal() or not int(stated[:19]) > 0:
            raise ConfigError(f"{self.variable}={stated!r}: expected a positive integer.")
        return int(stated[:19])

    def check(self, found: int, where: object, error: type[KerasViTError]) -> None:
        """Raises `error` if a file asks for more; `where` names the file."""
        if found > self.value:
            raise error(
                f"{where}: {found:,} {self.of}, expected at most {self.value:,}. If the file is "
                f"to be trusted, set {self.variable} in the environment."
            )


ARRAYS = Limit("KERAS_VIT_MAX_ARRAYS", 10_000, "arrays")
"""In one file of weights. A ViT of 56 blocks has 901, and three times that with Adam's moments."""

HEADER_BYTES = Limit("KERAS_VIT_MAX_HEADER_BYTES", 2**23, "bytes that list the arrays")
"""Of a safetensors header or the directory of an npz: 10,000 entries of 800 bytes."""

JSON_BYTES = Limit("KERAS_VIT_MAX_JSON_BYTES", 2**24, "bytes of JSON")
"""In one file. Two times 21,843 labels need two million."""

EXPANSION = Limit("KERAS_VIT_MAX_EXPANSION", 20, "times the size of the file when decompressed")
"""By how much all arrays of a compressed file may exceed it. Trained weights hardly shrink."""

IMAGE_PIXELS = Limit("KERAS_VIT_MAX_PIXELS", 89_478_485, "pixels")
"""In one encoded image. Pillow warns from the same number on: 256 MiB of 3 bytes each."""

SMALL = 2**26
"""Bytes that any file may expand to, whatever its own size: a new head is nothing but zeros."""
