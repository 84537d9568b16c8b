"""Opens a checkpoint or preset on this machine."""

import contextlib
from io import BufferedReader
from pathlib import Path

from keras_vit.errors import SourceError, listed
from keras_vit.presets.place import Location
from keras_vit.support.files import OpenFolder, exists, open_plain

PICKLE_ADVICE = (
    "keras_vit unpickles only on request: read={'allow_pickle_weights': True} (in with_head, "
    "the argument allow_pickle_weights) reads its arrays by torch.load(weights_only=True). Safer: "
    "write safetensors where the pickle was made, by timm.models.save_for_hf(model, folder, "
    "safe_serialization=True), by save_pretrained of transformers, or by "
    "safetensors.torch.save_file(torch.load(path, weights_only=True), 'model.safetensors')."
)


class LocalFolder(Location):
    """A folder of this machine, or one file of it."""

    pickle_advice = PICKLE_ADVICE

    def __init__(self, path: Path) -> None:
        self.address = str(path)
        self._path = path
        self._folder = _open_folder(path)
        self.is_file = self._folder is None
        self.files = {path.name: None} if self._folder is None else self._folder.sizes()

    def folder_advice(self) -> str:
        """Returns advice that names the presets in subfolders, such as `best/` and `last/`."""
        presets = sorted(str(path.parent) for path in self._path.glob("*/config.json"))
        return (
            f"Choose one of its presets: {listed(presets)}." if presets else super().folder_advice()
        )

    def folder(self) -> "LocalFolder":
        """Returns the folder of the file."""
        return LocalFolder(self._path.parent)

    def open(self, name: str) -> BufferedReader:
        try:
            return open_plain(self._path) if self._folder is None else self._folder.open(name)
        except FileNotFoundError as error:
            if self._folder is not None:
                raise
            message = f"{self._path}: expected a file of weights, but it does not exist."
            raise SourceError(message) from error
        except OSError as error:
            raise SourceError(f"{error.filename}: cannot be opened ({error.strerror}).") from error

    def is_current(self) -> bool:
        if self._folder is not None:
            return self._folder.is_current()
        return not self._path.is_dir()  # a folder that a writer was just replacing

    def close(self) -> None:
        if self._folder is not None:
            self._folder.close()


def _open_folder(path: Path) -> OpenFolder | None:
    """Returns the open folder at a path; None if the path is a file or does not exist."""
    try:
        while exists(path):
            with contextlib.suppress(FileNotFoundError):  # a writer is replacing the folder
                return OpenFolder(path)
    except NotADirectoryError:
        return None
    except OSError as error:
        raise SourceError(f"{path}: cannot be opened ({error.strerror}).") from error
    return None
