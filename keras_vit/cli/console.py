"""What the commands share: where they print, how they show progress, which files are images."""

from collections.abc import Iterable
from pathlib import Path

from rich.progress import Progress, ProgressColumn, Task
from rich.text import Text

from keras_vit.errors import KerasViTError
from keras_vit.preparation import list_images
from keras_vit.terminal.screen import Screen

console = Screen()


def images_per_second(stderr: Screen) -> Progress:
    """A progress bar for images, silent where stderr is no terminal."""
    columns = (*Progress.get_default_columns(), _ImagesPerSecond())
    return Progress(*columns, console=stderr, disable=not stderr.is_terminal)


def image_files(paths: Iterable[Path]) -> list[Path]:
    """Files as given; folders by the images in them. Stderr tells of hidden files.

    Raises:
        KerasViTError: a folder has no image in it, or cannot be listed.
    """
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            found = list_images(path)
            if not found.images:
                raise KerasViTError(f"{path}: no image in this folder.")
            if found.hidden:
                Screen(stderr=True).print(
                    f"keras-vit: {path}: {found.hidden} hidden files left out.", soft_wrap=True
                )
            files += map(Path, found.images)
        else:
            files.append(path)
    return files


class _ImagesPerSecond(ProgressColumn):
    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:.1f} images/s")
