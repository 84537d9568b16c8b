"""Helpers that need no Keras: expected messages, and JSON."""

import json
import re

import pytest


def through_json(config: dict) -> dict:
    """The configuration after it is written as JSON and read back."""
    return json.loads(json.dumps(config))


def edit_json(path, *keys: str, **changes: object) -> None:
    """Changes values of the object below `keys` in a JSON file; the value `...` removes a key."""
    content = place = json.loads(path.read_text())
    for key in keys:
        place = place[key]
    place.update(changes)
    for key in [key for key, value in changes.items() if value is ...]:
        del place[key]
    path.write_text(json.dumps(content))


def raises(error: type[Exception], *words: str):
    """Expects an exception whose message contains all the words, in order."""
    return pytest.raises(error, match="(?s)" + ".*".join(re.escape(word) for word in words))
