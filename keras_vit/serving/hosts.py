"""The names under which a server answers."""

import fnmatch
import ipaddress
from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

from fastapi import HTTPException, Request

from keras_vit.errors import shown


def check_host(allowed_hosts: Sequence[str]) -> Callable[[Request], None]:
    """Returns a dependency of all routes that refuses requests to any other host, with 400.

    A stranger's page reaches a server by a name of the stranger's (DNS rebinding), never by an
    address in numbers, which Starlette's `TrustedHostMiddleware` would refuse.

    Args:
        allowed_hosts: names, as in `keras_vit.serving.Settings`.
    """

    def check(request: Request) -> None:
        name = ""
        try:
            name = urlsplit(f"//{request.headers.get('host', '')}").hostname or ""
            ipaddress.ip_address(name)
        except ValueError as error:
            if not any(fnmatch.fnmatchcase(name, pattern.lower()) for pattern in allowed_hosts):
                raise HTTPException(
                    400,
                    f"{shown(name)} is no name of this server. Use its address in numbers, or "
                    "start it with --allowed-hosts and this name (Settings.allowed_hosts).",
                ) from error

    return check
