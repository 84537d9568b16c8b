"""The names under which a server answers."""

import fnmatch
import ipaddress
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers

from keras_vit.errors import shown
from keras_vit.serving.refusals import refusal


def refuse_other_hosts(app: Any, allowed_hosts: Sequence[str]) -> Any:
    """Returns an application that refuses requests to another host, and from another site.

    A request to another host gets 400. A request from a page of another site (`Origin`) that may
    compute gets 403: browsers send simple forms to any address.

    A malicious page reaches a server through its own domain (DNS rebinding), and never through a
    numeric address, which Starlette's `TrustedHostMiddleware` would refuse.

    Args:
        app: the ASGI application.
        allowed_hosts: names, as in `keras_vit.serving.Settings`.
    """

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        target = app
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            host, origin = headers.get("host", ""), headers.get("origin")
            if not _is_own(host, allowed_hosts):
                sentence = (
                    f"{shown(host)} is not a name of this server. Use its numeric address, or "
                    "start it with --allowed-hosts and this name (Settings.allowed_hosts)."
                )
                target = refusal(scope["path"], sentence, 400)
            elif scope["method"] == "POST" and not _is_same_site(origin, host, allowed_hosts):
                sentence = (
                    f"A page of {shown(origin)} may not send images here. Start the server with "
                    "--allowed-hosts and the page's host (Settings.allowed_hosts) to allow it."
                )
                target = refusal(scope["path"], sentence, 403)
        await target(scope, receive, send)

    return answer


def _is_same_site(origin: str | None, host: str, allowed_hosts: Sequence[str]) -> bool:
    """Whether a request comes from no page, or from one of this host or of an allowed name."""
    if origin is None:
        return True
    try:
        page, own = urlsplit(origin).hostname or "", urlsplit(f"//{host}").hostname
    except ValueError:
        return False
    # "*" allows every name of this server, and not every stranger.
    names = [pattern.lower() for pattern in allowed_hosts if pattern != "*"]
    return page == own or any(fnmatch.fnmatchcase(page, name) for name in names)


def _is_own(host: str, allowed_hosts: Sequence[str]) -> bool:
    """Whether a header `Host` has an allowed name or an IP address, with or without a port."""
    name = ""
    try:
        name = urlsplit(f"//{host}").hostname or ""
        ipaddress.ip_address(name)
    except ValueError:
        return any(fnmatch.fnmatchcase(name, pattern.lower()) for pattern in allowed_hosts)
    return True
