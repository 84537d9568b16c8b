"""The names under which a server answers."""

import fnmatch
import ipaddress
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import JSONResponse

from keras_vit.errors import shown


class KnownHosts:
    """Refuses requests for a name that is none of the server's, with 400.

    A stranger's page reaches a server by a name of the stranger's (DNS rebinding), never by an
    address in numbers, which Starlette's `TrustedHostMiddleware` would refuse.

    Args:
        app: the ASGI application.
        allowed_hosts: names, as in `keras_vit.serving.Settings`.
    """

    def __init__(self, app: Any, allowed_hosts: Sequence[str]) -> None:
        self._app = app
        self._names = [name.lower() for name in allowed_hosts]

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Passes the request on, or answers 400."""
        app = self._app
        if scope["type"] == "http":
            host = Headers(scope=scope).get("host", "")
            name = host.partition(":")[0].lower()
            is_known = any(fnmatch.fnmatchcase(name, pattern) for pattern in self._names)
            if not (is_known or _is_address(host)):
                sentence = (
                    f"This server has not the name {shown(host)}. Use its address in numbers, or "
                    "start it with --allowed-hosts and this name (Settings.allowed_hosts)."
                )
                app = JSONResponse({"detail": sentence}, 400)
        await app(scope, receive, send)


def _is_address(host: str) -> bool:
    """Whether a header `Host` holds an IP address, with or without a port."""
    try:
        ipaddress.ip_address(urlsplit(f"//{host}").hostname or "")
    except ValueError:
        return False
    return True
