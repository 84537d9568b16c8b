"""Text from files is shown on terminals, in HTML and in figures, and never interpreted."""

import io

import pytest
from rich.table import Table

from keras_vit.cli.console import Screen
from keras_vit.errors import CheckpointError
from keras_vit.support.text import in_markdown, log, visible, warn
from tests.processes import python

pytestmark = pytest.mark.without_backend

CONTROLS = "".join(
    map(chr, [*range(32), *range(0x7F, 0xA0), 0xAD, 0x61C, *range(0x200B, 0x2010)])
) + "".join(map(chr, [*range(0x2028, 0x202F), *range(0x2060, 0x206A), 0x3164, 0xFEFF, 0xE0041]))
"""Controls, bidirectional marks and overrides, separators, zero-width characters, tags."""


def test_control_characters_are_shown_as_their_python_escapes():
    """The letters around them stay; a screen keeps line feeds and tabs with `lines=True`."""
    for letter in CONTROLS:
        shown = visible(f"a{letter}b")
        assert shown.isascii() and shown.isprintable() and len(shown) > 3
        assert eval(f'"{shown}"') == f"a{letter}b"
    assert visible("a\n\tb\rc", lines=True) == "a\n\tb\\rc"
    assert visible("\ud83d") == "\\ud83d"
    assert visible(b"b\xe4r.png".decode("utf-8", "surrogateescape")) == "b\\xe4r.png"


def test_ordinary_text_of_any_script_is_unchanged():
    """Letters, marks, emoji, spaces, and the backslashes of paths."""
    text = "Übergröße 犬　猫 כלב नमस्ते 🐕 a\u00a0b C:\\new\\table"
    assert visible(text) == text


@pytest.mark.parametrize(
    "text",
    ["[a](http://b)", "![a](http://b)", "<img src=x>", "&lt;", "`a`", "**a**", "_a_ __b__", "~~a~~",
     "a | b", "$x^2$", "# a", "a_b_c http://a_b/c_d.npz", "back\\slash", "犬_犬"],
)  # fmt: skip
def test_markdown_shows_text_as_it_is(text):
    """Rendered by a Markdown library, it has the same letters and no elements."""
    from markdown_it import MarkdownIt

    (inline,) = [t for t in MarkdownIt().enable("strikethrough").parse(f"- {in_markdown(text)}")
                 if t.type == "inline"]  # fmt: skip
    assert {part.type for part in inline.children} <= {"text", "text_special"}
    assert "".join(part.content for part in inline.children) == text
    assert in_markdown("a\n# b\x1b") == "a\\\\n\\# b\\\\x1b"
    assert in_markdown("vit_b16 http://a_b/c_d") == "vit_b16 http://a_b/c_d"


def test_the_text_of_an_exception_has_no_control_characters():
    """In `str` and in a traceback; the arguments of the exception are unchanged."""
    error = CheckpointError("x\x1b]0;owned\x07: found \u202egpj.exe,\n  expected a")
    assert str(error) == "x\\x1b]0;owned\\x07: found \\u202egpj.exe,\n  expected a"
    assert error.args[0].count("\x1b") == 1
    code = "from keras_vit.errors import PresetError; raise PresetError('\\x1b[2J')"
    printed = python(code).stderr
    assert "\x1b[2J" not in printed
    assert "keras_vit.errors.PresetError: \\x1b[2J" in printed


def printed(show, encoding: str = "utf-8") -> str:
    """The text that a console writes to a terminal."""
    buffer = io.TextIOWrapper(io.BytesIO(), encoding=encoding, newline="")
    console = Screen(file=buffer, force_terminal=True, width=120, color_system=None)
    show(console)
    buffer.flush()
    return buffer.buffer.getvalue().decode(encoding)


MARKUP = ["[/red]", "[bold]x", "[link=https://evil.example]x[/link]", "img[final].jpg", ":smile:"]
CONTROLLED = "\x1b[2Jline\r\x08\u202e"


@pytest.mark.parametrize("text", [*MARKUP, CONTROLLED])
def test_markup_and_control_characters_are_printed_as_text(text):
    """In lines, cells, headings and titles."""
    shown = visible(text)
    table = Table(text, title=text)
    table.add_row(text)
    assert printed(lambda screen: screen.print(text)) == f"{shown}\n"
    assert printed(lambda screen: screen.print(table)).count(shown) == 3
    assert shown in printed(lambda screen: screen.rule(text))


def test_letters_that_the_terminal_cannot_encode_are_escaped():
    """On an ASCII terminal."""
    assert printed(lambda screen: screen.print("犬 ü"), "ascii") == "\\u72ac \\xfc\n"


def test_log_records_and_warnings_show_control_characters_as_escapes(caplog):
    """Also of their arguments; the records reach handlers of every kind."""
    log.warning("%s is no protocol", "x\x1b[2J\u202e")
    assert caplog.messages == ["x\\x1b[2J\\u202e is no protocol"]
    with pytest.warns(UserWarning) as caught:
        warn("b\x9b2J.png\nsecond line")
    assert str(caught[0].message) == "b\\x9b2J.png\nsecond line"
    assert caught[0].filename == __file__
