"""The console of the command line: rich without markup, because text from files could misuse it."""

from typing import Any

from rich.console import Console
from rich.text import Text

from keras_vit.text import visible


class Screen(Console):
    """A rich console that takes every string literally.

    rich passes each line, cell and title to `render_str`, so that markup, emoji codes and terminal
    escapes in a string have no effect. Styled text is a `rich.text.Text`.
    """

    def render_str(self, text: str, **options: Any) -> Text:
        shown = visible(text, lines=True)
        shown = shown.encode(self.encoding, "backslashreplace").decode(self.encoding)
        return super().render_str(shown, **{**options, "markup": False, "emoji": False})
