"""Reports the keys of a config.json that keras_vit does not read."""

from keras_vit.checkpoints.families.family import Format, Stated
from keras_vit.errors import listed, shown
from keras_vit.support.text import log


def warn_of_unread_keys(stated: Stated, format: Format) -> None:
    """Logs in one line the keys that are not read and do not have their default value."""
    known = {name for keys in (*format.keys, *format.shapes) for name in keys.split()}
    unread = [f"{k}={shown(v, 40)}" for k, v in stated.unread.items() if k not in known]
    if unread:
        found = listed(unread, 12)
        log.warning("config.json has %s, which keras_vit does not read.", found)
