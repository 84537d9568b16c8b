"""A room's refusals as the rows of one table, and their whole messages in one file.

    REFUSALS = {
        "a width of zero": (lambda world: tiny(hidden_size=0), ConfigError, "hidden_size=0"),
    }

    @pytest.mark.parametrize("name", REFUSALS)
    def test_refusals(name, world, messages):
        messages.check(name, REFUSALS, world)

`messages` reads `refusals.txt` in the folder of `test_refusals.py`. After a change of words,
`pytest --write-messages` writes the file anew, and its diff is what a reviewer reads.
"""

import functools
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

Refusal = tuple[Callable[[Any], object], type[BaseException], str]
"""The call, which takes the room's world; the exception; and a part of its message."""


class World:
    """What the calls of a room's refusals may use. A room adds its own to a subclass.

    Attributes:
        path: an empty folder for what a call reads.
        out: a path in which a refused call must leave nothing.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.out = path, path / "out"

    @functools.cached_property
    def model(self) -> Any:
        """A small classifier of three classes."""
        from tests.helpers import tiny

        return tiny(num_classes=3)


class Messages:
    """The file with the whole messages of a table, each below the name of its row."""

    def __init__(self, path: Path, write: bool) -> None:
        self._path, self._write = path, write
        self._stored: dict[str, str] = {}
        if path.exists():
            for entry in path.read_text("utf-8").split("\n\n## ")[1:]:
                name, _, text = entry.partition("\n")
                self._stored[name] = text.strip("\n")

    def check(self, name: str, table: Mapping[str, Refusal], world: World) -> None:
        """Fails unless the call of a row is refused in its words, and leaves nothing behind.

        The exception has the type of the row, not that of a subclass.
        """
        call, error, fragment = table[name]
        with pytest.raises(error) as caught:
            call(world)
        assert caught.type is error
        assert not world.out.exists()
        message = str(caught.value).replace(str(world.path), "<folder>")
        message = re.sub(r"<folder>\S*", lambda place: place[0].replace(os.sep, "/"), message)
        assert fragment in message
        found = f"{error.__name__}: {message}"
        if self._write:
            self._stored = {row: self._stored.get(row, "") for row in table} | {name: found}
            entries = (f"## {row}\n{text}\n" for row, text in self._stored.items())
            self._path.write_text("# Messages of refusals\n\n" + "\n".join(entries), "utf-8")
        assert list(self._stored) == list(table), "run pytest --write-messages on this file"
        assert found == self._stored[name]
