"""Names the keys of a config.json that keras_vit does not read, where they may change the network.

`unread_keys.json` has the defaults of transformers' own classes, and a pattern of the keys that
change no network; `python -m weights.make_defaults` writes both.
"""

import functools
import json
import re
from pathlib import Path
from typing import Any

from keras_vit.checkpoints.dialects import Dialect
from keras_vit.checkpoints.dialects.json_fields import Json, object_at
from keras_vit.checkpoints.dialects.timm.by_name import known_arguments
from keras_vit.errors import listed, shown
from keras_vit.support.text import log

FILE = Path(__file__).with_suffix(".json")


def find_keys(dialect: Dialect) -> tuple[tuple[str, ...], frozenset[str]]:
    """Returns the path of a network's object in config.json, and the keys that are read there."""
    tables = [table for table in dialect.json if table.file == "config.json"]
    where = max((table.at for table in tables), key=len, default=())
    return where, frozenset(k for t in tables if t.at == where for r in t.rows for k in r.keys)


@functools.cache
def _read_data() -> dict[str, Any]:
    return json.loads(FILE.read_text("utf-8"))


def warn_of_unread_keys(files: Json, dialect: Dialect) -> None:
    """Logs in one line the keys of a network that are not read and have no default value.

    The libraries are transformers, and timm, whose keys are the arguments of the architecture.
    """
    if not dialect.is_named_by(files) or dialect.library not in ("timm", "transformers"):
        return
    config, data = files["config.json"], _read_data()
    where, known = find_keys(dialect)
    if dialect.library == "timm":
        known |= known_arguments(config["architecture"])
    defaults = data["families"].get(dialect.name, {})
    unread = [
        f"{key}={shown(value, 40)}"
        for key, value in object_at(config, where).items()
        if key not in known and not re.fullmatch(data["others"], key)
        if value != defaults.get(key) and (value or key in defaults)
    ]
    if unread:
        found = listed(unread, 12)
        log.warning("config.json states %s, which keras_vit does not read.", found)
