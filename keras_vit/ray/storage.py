"""Reads files at addresses such as `s3://bucket/a.jpg`, by the file systems of pyarrow."""

import functools
from typing import Any

from keras_vit.errors import ConfigError, first_line
from keras_vit.support.extras import import_extra


def pyarrow() -> Any:
    """Returns the module pyarrow; raises `ConfigError` if it is not installed."""
    import_extra("pyarrow.fs", "ray", "keras_vit.ray")
    return import_extra("pyarrow", "ray", "keras_vit.ray")


def is_address(place: str) -> bool:
    """Whether a place is an address such as `s3://bucket/folder`, not a local path."""
    return "://" in place


def read_bytes(address: str) -> bytes:
    """Returns the content of a file.

    Args:
        address: an address that pyarrow reads, such as `s3://bucket/a.jpg`, or
            `fsspec+az://container/a.jpg` by an installed fsspec package.

    Raises:
        ConfigError: the file cannot be read.
    """
    scheme, _, rest = address.partition("://")
    host, _, path = rest.partition("/")
    try:
        system, start = _connect(f"{scheme}://{host}/")
        with system.open_input_stream(f"{start.rstrip('/')}/{path}") as stream:
            return bytes(stream.read())
    except Exception as error:  # every file system has its own exceptions
        raise ConfigError(f"{address}: cannot be read ({first_line(error)}).") from error


@functools.cache  # so that a client of S3 is made once
def _connect(address: str) -> tuple[Any, str]:
    system_and_path: tuple[Any, str] = pyarrow().fs.FileSystem.from_uri(address)
    return system_and_path
