"""The folder of keras_vit's own cache, and comparisons of cached files with their sha256."""

import contextlib
import hashlib
import os
from pathlib import Path

from keras_vit.errors import PresetError, shown
from keras_vit.support.files import open_plain


def cache_folder() -> Path:
    """Returns KERAS_VIT_CACHE, else `keras_vit` in the assets folder of Hugging Face's cache.

    Hugging Face provides that folder for libraries; HF_HOME and HF_ASSETS_CACHE move it.
    """
    if chosen := os.environ.get("KERAS_VIT_CACHE"):
        try:
            return Path(chosen).expanduser()
        except RuntimeError as error:
            raise PresetError(
                f"KERAS_VIT_CACHE is {shown(chosen)}, but there is no such user. Write the folder "
                "without ~."
            ) from error
    from huggingface_hub.constants import HF_ASSETS_CACHE

    return Path(HF_ASSETS_CACHE).expanduser() / "keras_vit"


def has_sha256(path: Path, expected: str) -> bool:
    """Returns whether a file has a sha256, which is computed once for each size and time stamp.

    An empty file in `compared/` of the cache records a comparison, since 350 MB cost 0.3 s.

    Args:
        path: path of the file.
        expected: the sha256, hexadecimal.
    """
    state = path.stat()
    facts = f"{path.resolve()}\n{state.st_size}\n{state.st_mtime_ns}\n{expected}"
    record = cache_folder() / "compared" / hashlib.sha256(facts.encode()).hexdigest()
    if record.is_file():
        return True
    with open_plain(path) as file:
        same = hashlib.file_digest(file, "sha256").hexdigest() == expected
    if same:
        with contextlib.suppress(OSError):  # without a record the next call compares again
            record.parent.mkdir(parents=True, exist_ok=True)
            record.touch()
    return same
