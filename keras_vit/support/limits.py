"""Limits on untrusted files. A file above a limit is refused before it is read.

Each limit is far above what a Vision Transformer needs. To read larger files on purpose, raise it
with an environment variable. SECURITY.md lists the limits.
"""

import dataclasses
import os

from keras_vit.errors import ConfigError, KerasViTError


@dataclasses.dataclass(frozen=True)
class Limit:
    """A limit that an environment variable can change.

    Args:
        variable: name of the environment variable.
        default: value if the variable is not set.
        unit: unit of the limit, for messages.
    """

    variable: str
    default: int
    unit: str

    @property
    def value(self) -> int:
        """The current value of the limit.

        Raises:
            ConfigError: the variable is not a positive integer.
        """
        text = os.environ.get(self.variable)
        if text is None:
            return self.default
        if not text.isdecimal() or not int(text[:19]) > 0:
            raise ConfigError(f"{self.variable}={text!r}: expected a positive integer.")
        return int(text[:19])

    def check(self, number: int, where: object, error: type[KerasViTError]) -> None:
        """Raises `error` if `number` is above the limit; `where` names the file."""
        if number > self.value:
            raise error(
                f"{where}: {number:,} {self.unit}, expected at most {self.value:,}. If you "
                f"trust the file, set {self.variable} in the environment."
            )


ARRAYS = Limit("KERAS_VIT_MAX_ARRAYS", 10_000, "arrays")
"""Arrays in one file of weights. A ViT of 56 blocks has 901, and with Adam's moments 2,703."""

HEADER_BYTES = Limit("KERAS_VIT_MAX_HEADER_BYTES", 2**23, "bytes that list the arrays")
"""Size of a safetensors header or the directory of an npz: 10,000 entries of 800 bytes."""

JSON_BYTES = Limit("KERAS_VIT_MAX_JSON_BYTES", 2**24, "bytes of JSON")
"""Size of one JSON file. Twice 21,843 labels need two million bytes."""

EXPANSION = Limit("KERAS_VIT_MAX_EXPANSION", 20, "times the size of the file when decompressed")
"""Size of all arrays relative to their compressed file. Trained weights hardly compress."""

IMAGE_PIXELS = Limit("KERAS_VIT_MAX_PIXELS", 89_478_485, "pixels")
"""Pixels in one encoded image, as in Pillow's warning: 256 MiB of 3 bytes each."""

SMALL = 2**26
"""Bytes that every file may expand to, for small files of zeros, such as those of a new head."""
