"""Shows progress bars, and prints lines above them.

Text from files could contain markup of rich, so `Screen` prints it literally.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

from rich.console import Console
from rich.text import Text

from keras_vit.support.text import visible


class Screen(Console):
    """A rich console that prints every string literally.

    Markup, emoji codes and terminal escapes in a string have no effect: rich passes each line, cell
    and title to `render_str`. Styled text is a `rich.text.Text`.
    """

    def render_str(self, text: str, **options: Any) -> Text:
        shown = visible(text, lines=True)
        shown = shown.encode(self.encoding, "backslashreplace").decode(self.encoding)
        return super().render_str(shown, **{**options, "markup": False, "emoji": False})


stderr = Screen(stderr=True)
"""The console for notes and progress bars; a printed line appears above an active bar."""


@contextlib.contextmanager
def progress_bar(
    shown: bool, title: str, total: int | None, unit: str = "images"
) -> Iterator[Callable[[int], None]]:
    """Shows a progress bar on stderr, if `shown` and stderr is a terminal.

    Args:
        shown: whether to show the bar.
        title: text before the bar.
        total: number of steps, such as images; None if it is unknown.
        unit: name of the steps, for the rate.

    Yields:
        A function to call with the number of further steps.
    """
    if not (shown and stderr.is_terminal):
        yield lambda steps: None
        return
    from rich.progress import Progress, ProgressColumn, Task  # here, for a quick `--help`

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            speed = task.finished_speed or task.speed
            return Text("" if speed is None else f"{speed:.1f} {unit}/s")

    with Progress(*Progress.get_default_columns(), Rate(), console=stderr) as progress:
        yield functools.partial(progress.advance, progress.add_task(title, total=total))
