"""uvicorn's protocol, with an end for connections that do not send a request.

uvicorn 0.54 waits without limit for the headers of a request, and for the rest of a body whose
request was refused. Clients that send nothing would hold all connections.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol


class PatientProtocol(H11Protocol):
    """A connection of uvicorn that is closed if the headers of no request arrive in time.

    The limit is `timeout_keep_alive`. uvicorn alone stops counting at the first byte of a request.
    """

    _end: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._wait_for_a_request()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._wait_for_a_request()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._end is not None:
            self._end.cancel()

    def _wait_for_a_request(self) -> None:
        if self._end is not None:
            self._end.cancel()
        self._end = self.loop.call_later(self.timeout_keep_alive, self._close_if_idle)

    def _close_if_idle(self) -> None:
        is_idle = self.cycle is None or self.cycle.response_complete
        if is_idle and not self.transport.is_closing():
            self.transport.close()
