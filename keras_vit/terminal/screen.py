"""The console of the command line: rich, without what strangers could make of its markup."""

from typing import Any

from rich.console import Console
from rich.text import Text

from keras_vit.terminal import visible


class Screen(Console):
    """A rich console that takes every string literally.

    rich asks `render_str` for each string that it prints, be it a line, a cell or a title; so
    none can bring markup, emoji codes or terminal escapes. Styled text is a `rich.text.Text`.
    """

    def render_str(self, text: str, **options: Any) -> Text:
        shown = visible(text, lines=True)
        shown = shown.encode(self.encoding, "backslashreplace").decode(self.encoding)
        return super().render_str(shown, **{**options, "markup": False, "emoji": False})
