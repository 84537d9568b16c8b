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
    """Refuses requests for a name that is none of the server's, by Starlette's rules.

    A stranger's page reaches a server by a name of the stranger's (DNS rebinding), never by an
    address in numbers, which is therefore taken.

    Args:
        app: the ASGI application.
        allowed_hosts: names, as in `keras_vit.serving.Settings`.
    """

    def __init__(self, app: Any, allowed_hosts: Sequence[str]) -> None:
        self._app = app
        self._allowed = tuple(allowed_hosts)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Passes the request on, or answers 400."""
        host = Headers(scope=scope).get("host", "") if scope["type"] == "http" else ""
        app = self._app
        if not (_is_address(host) or await self.knows_host(scope, receive)):
            sentence = (
                f"This server has not the name {shown(host)}. Use its address in numbers, or start "
                "it with --allowed-hosts and this name (Settings.allowed_hosts)."
            )
            app = JSONResponse({"detail": sentence}, 400)
        await app(scope, receive, send)

    async def knows_host(self, scope: Any, receive: Any) -> bool:
        """Whether a request asks for a name of this server."""
        passed = []

        async def accept(*_: Any) -> None:
            passed.append(True)

        async def discard(message: Any) -> None:
            """Drops Starlette's own refusal, which names no fix."""

        check = TrustedHostMiddleware(accept, self._allowed, www_redirect=False)
        await check(scope, receive, discard)
        return bool(passed)


def _is_address(host: str) -> bool:
    """Whether a header `Host` holds an IP address, with or without a port."""
    try:
        ipaddress.ip_address(urlsplit(f"//{host}").hostname or "")
    except ValueError:
        return False
    return True
