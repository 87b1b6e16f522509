"""Browser connection: HTTP of one connection, within limits of time that uvicorn does not have.

Connections count to the server's limit. A stranger who opens many and sends no request, or does not
read the responses, would keep everybody else out.
"""

import asyncio
from typing import Any, Final

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

REQUEST_S: Final = 10.0
"""Time in which the headers of a request have to come, also those of the next one."""

UNREAD_S: Final = 30.0
"""Time in which a browser has to read what waits for it: 64 KB and what the system holds."""


class BrowserConnection(H11Protocol):
    """One connection; it is closed when its browser is too slow."""

    request_s = REQUEST_S
    unread_s = UNREAD_S

    def __init__(self, *settings: Any, **more: Any) -> None:
        super().__init__(*settings, **more)
        self._awaited: asyncio.TimerHandle | None = None
        """Set while no request is being served."""
        self._unread: asyncio.TimerHandle | None = None
        """Set while the browser does not read."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first request."""
        super().connection_made(transport)
        self._watch_request()

    def data_received(self, data: bytes) -> None:
        """Take bytes of a request."""
        super().data_received(data)
        self._watch_request()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        self._watch_request()

    def pause_writing(self) -> None:
        """Wait for a browser that does not read."""
        super().pause_writing()
        self._unread = self.loop.call_later(self.unread_s, self.transport.abort)

    def resume_writing(self) -> None:
        """Go on: the browser reads."""
        super().resume_writing()
        _cancel(self._unread)

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing any more."""
        super().connection_lost(exc)
        _cancel(self._awaited)
        _cancel(self._unread)

    def _watch_request(self) -> None:
        cycle: RequestResponseCycle | None = self.cycle  # None before the first request
        if cycle is not None and not cycle.response_complete:
            _cancel(self._awaited)
            self._awaited = None
        elif self._awaited is None and not self.transport.is_closing():
            self._awaited = self.loop.call_later(self.request_s, self.transport.abort)


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
