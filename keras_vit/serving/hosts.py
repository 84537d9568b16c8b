"""The names under which a server answers."""

import ipaddress
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.responses import JSONResponse

from keras_vit.errors import shown


class KnownHosts:
    """Refuses requests for a name that is none of the server's, by Starlette's class.

    Starlette's own refusal names no fix, and takes no addresses in numbers. A stranger's page
    reaches a server by a name of the stranger's (DNS rebinding), never by such an address.

    Args:
        app: the ASGI application.
        allowed_hosts: names, as in `keras_vit.serving.Settings`.
    """

    def __init__(self, app: Any, allowed_hosts: Sequence[str]) -> None:
        self._app = app
        self._check = TrustedHostMiddleware(_answer_nothing, allowed_hosts, www_redirect=False)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Passes the request on, or answers 400."""
        app = self._app
        host = Headers(scope=scope).get("host", "") if scope["type"] == "http" else ""
        if scope["type"] == "http" and not _is_address(host):
            refusal: list[Any] = []

            async def collect(message: Any) -> None:
                refusal.append(message)

            await self._check(scope, receive, collect)
            if refusal:
                sentence = (
                    f"This server has not the name {shown(host)}. Use its address in numbers, or "
                    "start it with --allowed-hosts and this name (Settings.allowed_hosts)."
                )
                app = JSONResponse({"detail": sentence}, 400)
        await app(scope, receive, send)


async def _answer_nothing(scope: Any, receive: Any, send: Any) -> None:
    """An ASGI application that Starlette's class calls for a name of the server."""


def _is_address(host: str) -> bool:
    """Whether a header `Host` holds an IP address, with or without a port."""
    try:
        ipaddress.ip_address(urlsplit(f"//{host}").hostname or "")
    except ValueError:
        return False
    return True
