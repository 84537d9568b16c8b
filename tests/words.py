"""Helpers that need no Keras: expected messages, and JSON."""

import json
import re

import pytest


def through_json(config: dict) -> dict:
    """The configuration after it is written as JSON and read back."""
    return json.loads(json.dumps(config))


def raises(error: type[Exception], *words: str):
    """Expects an exception whose message contains all the words, in order."""
    return pytest.raises(error, match="(?s)" + ".*".join(re.escape(word) for word in words))
