"""Which converters and runtimes a format needs, and the line that installs them."""

import importlib.util
from importlib import metadata

from packaging.requirements import Requirement

from keras_vit.errors import ExportError
from keras_vit.exporting.formats.base import Format


def check(name: str, form: Format, precision: str, runs: bool) -> None:
    """Returns if everything is installed, in versions that work.

    Args:
        name: of the format.
        form: the format.
        precision: of the export.
        runs: whether the runtime is needed too, for a comparison or a measurement.

    Raises:
        ExportError: names what is missing or too old, and the line that installs it.
    """
    writes = {**form.writes, **(form.quantises if precision == "int8" else {})}
    if lacking := _lacking(writes):
        raise ExportError(f"format={name!r} is written by {lacking}")
    if runs and (lacking := _lacking(form.reads)):
        raise ExportError(
            f"format={name!r} is verified by {lacking} Or leave the comparison out: verify=False, "
            "--no-verify."
        )


def _lacking(modules: dict[str, str]) -> str | None:
    missing = {name: extra for name, extra in modules.items() if not _is_there(name)}
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        return f"{', '.join(missing)}, which {verb} not installed: {_line(missing)}"
    old = {name: extra for name, extra in modules.items() if _is_too_old(name)}
    if old:
        found = ", ".join(f"{name} {_version(name)}" for name in old)
        wanted = ", ".join(f"{name}{_wanted(name)}" for name in old)
        return f"{wanted}; installed is {found}: {_line(old)}"
    return None


def _line(modules: dict[str, str]) -> str:
    return f"pip install --upgrade 'keras-vit[{','.join(sorted(set(modules.values())))}]'."


def _is_there(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def _is_too_old(name: str) -> bool:
    version = _version(name)
    return version is not None and not Requirement(f"x{_wanted(name)}").specifier.contains(
        version, prereleases=True
    )


def _version(name: str) -> str | None:
    """The installed version, or None for a package that goes by another name."""
    try:
        return metadata.version(name.replace("_", "-"))
    except metadata.PackageNotFoundError:
        return None


def _wanted(name: str) -> str:
    """The versions that keras_vit's own extras ask for, such as `">=1.22"`, or `""`."""
    try:
        stated = metadata.requires("keras-vit") or []
    except metadata.PackageNotFoundError:  # a source tree that was never installed
        return ""
    wanted = (Requirement(line) for line in stated)
    return next((str(r.specifier) for r in wanted if r.name == name.replace("_", "-")), "")
