"""Which converters and runtimes a format needs, and the line that installs them."""

import importlib.util

from keras_vit.errors import ExportError
from keras_vit.exporting.formats.base import Format


def check(name: str, form: Format, verify: bool) -> None:
    """Returns if everything is installed.

    Args:
        name: of the format.
        form: the format.
        verify: whether the runtime is needed too.

    Raises:
        ExportError: names what is missing and the line that installs it.
    """
    if missing := _missing(form.writes):
        raise ExportError(f"format={name!r} is written by {missing}")
    if verify and (missing := _missing(form.reads)):
        raise ExportError(
            f"format={name!r} is verified by {missing} Or leave the comparison out: verify=False, "
            "--no-verify."
        )


def _missing(modules: dict[str, str]) -> str | None:
    missing = {name: extra for name, extra in modules.items() if not _is_there(name)}
    if not missing:
        return None
    extras = ",".join(sorted(set(missing.values())))
    verb = "is" if len(missing) == 1 else "are"
    return f"{', '.join(missing)}, which {verb} not installed: pip install 'keras-vit[{extras}]'."


def _is_there(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False
