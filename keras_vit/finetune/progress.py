"""Progress of `fit` as a bar, also if the output is no terminal."""

from typing import Any

import keras
from rich.console import Console
from rich.progress import Progress


class ProgressBar(keras.callbacks.Callback):
    """A bar of all steps of a training, and a line of figures for every epoch.

    Args:
        console: the rich console for bar and lines.
        title: text in front of the bar.
        epochs: whether the lines are shown.
    """

    def __init__(self, console: Console, title: str = "fine-tuning", epochs: bool = True) -> None:
        super().__init__()
        self._console = console
        self._title = title
        self._lines = epochs
        self._bar: Progress | None = None

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if self._bar is None:  # a resumed training begins in the middle
            steps = self.params["steps"]
            self._bar = Progress(console=self._console)
            self._task = self._bar.add_task(
                self._title, total=steps * self.params["epochs"], completed=steps * epoch
            )
            self._bar.start()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if self._bar is not None:
            self._bar.advance(self._task)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if self._bar is not None and self._lines:
            figures = "  ".join(f"{name} {value:.4g}" for name, value in (logs or {}).items())
            line = f"epoch {epoch + 1}/{self.params['epochs']}  {figures}"
            self._bar.console.print(line, soft_wrap=True)

    def __enter__(self) -> "ProgressBar":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def on_train_end(self, logs: Any = None) -> None:
        self.close()

    def close(self) -> None:
        """Removes the bar, also after a training that failed."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
