"""HTTP server: a few pages by GET and HEAD, one request a connection, with limits for strangers.

It shares the event loop with what the process is for. So it takes few connections, short requests
and little time, and a page is made in slices.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Final, NamedTuple, Self, TypeVar

import msgspec

from roquet.log_records import logger
from roquet.model.errors import ConfigError
from roquet.net.address import address_error, is_on_this_machine

log = logger(__name__)

T = TypeVar("T")

REQUEST_SIZE_MAX: Final = 8 * 1024
"""Bytes of a request's first line and headers."""

REQUEST_S: Final = 5.0
"""Seconds in which a request has to come."""

RESPONSE_S: Final = 60.0
"""Seconds in which a page has to be made and read."""

CONNECTIONS_MAX: Final = 16
"""Open connections. For another one the oldest that has not asked yet is ended, or one that has
been served for SERVED_S; else it is told to come later. So nobody can keep a supervisor from the
health page by connections that say nothing, or do not read."""

SERVED_S: Final = 10.0
"""Seconds after which a connection gives its place to a newer one: Prometheus waits no longer."""

TEXT: Final = "text/plain; charset=utf-8"

_REASONS: Final[Mapping[HTTPStatus, str]] = {
    HTTPStatus.BAD_REQUEST: "this is no HTTP request\n",
    HTTPStatus.FORBIDDEN: "this page is for this machine alone\n",
    HTTPStatus.NOT_FOUND: "there is no such page\n",
    HTTPStatus.METHOD_NOT_ALLOWED: "only GET and HEAD are served\n",
    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE: f"more than {REQUEST_SIZE_MAX} bytes of headers\n",
    HTTPStatus.SERVICE_UNAVAILABLE: "too many connections, try again\n",
    HTTPStatus.INTERNAL_SERVER_ERROR: "the page could not be made, see the log\n",
}


class HttpPage(msgspec.Struct, frozen=True):
    """A page: its type, and a function that makes its body piece by piece.

    The function may raise PageUnavailable.
    """

    content_type: str
    make: Callable[[], AsyncIterator[bytes]]
    is_local: bool = False
    """Whether it is shown to clients on this machine alone."""


class PageUnavailable(Exception):
    """A page whose answer is 503 Service Unavailable, with this text."""


class _OpenConnection(NamedTuple):
    """A connection that is being served."""

    began_s: float
    """By the loop's clock."""
    writer: asyncio.StreamWriter


class _BadRequest(Exception):
    """A request that is answered with an error."""

    def __init__(self, status: HTTPStatus) -> None:
        super().__init__(status)
        self.status = status


class HttpServer:
    """Serves pages by path: `async with HttpServer({"/metrics": page}, host, port)`."""

    def __init__(
        self, pages: Mapping[str, HttpPage], host: str, port: int, *, request_s: float = REQUEST_S
    ) -> None:
        self._pages = pages
        self._host = host
        self._port = port
        self._request_s = request_s
        self._tasks: dict[asyncio.Task[None], _OpenConnection] = {}
        """Tasks of open connections; the oldest first."""
        self._silent: dict[asyncio.Task[None], None] = {}
        """Those whose request has not come yet."""
        self._listener: asyncio.Server | None = None
        self._complained: set[type[Exception]] = set()

    @property
    def port(self) -> int:
        """The port that it listens on; the system chooses one for 0."""
        return self._port

    async def __aenter__(self) -> Self:
        try:
            self._listener = await asyncio.start_server(
                self._connected, self._host, self._port, limit=REQUEST_SIZE_MAX
            )
        except (OSError, UnicodeError) as error:
            raise ConfigError(
                f"cannot show metrics at {self._host}:{self._port}: {address_error(error)};"
                " choose another port with metricsPromExporterPort or --metrics"
            ) from error
        self._port = self._listener.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._listener is not None:
            self._listener.close()
        tasks = tuple(self._tasks)
        for task in tasks:
            self._end(task)
        await asyncio.gather(*tasks, return_exceptions=True)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection in a task that a stop can cancel."""
        loop = asyncio.get_running_loop()
        if len(self._tasks) >= CONNECTIONS_MAX and not self._end_oldest(loop.time()):
            writer.write(_response(HTTPStatus.SERVICE_UNAVAILABLE))
            writer.close()
            return
        task = loop.create_task(self._serve(reader, writer))
        self._tasks[task] = _OpenConnection(loop.time(), writer)
        self._silent[task] = None
        task.add_done_callback(self._forget)

    def _end_oldest(self, now_s: float) -> bool:
        """End a connection in favour of a new one; returns whether there is one to be ended."""
        task = next(iter(self._silent), None)
        if task is None:
            task, connection = next(iter(self._tasks.items()))
            if now_s - connection.began_s < SERVED_S:
                return False
        self._end(task)
        return True

    def _end(self, task: "asyncio.Task[None]") -> None:
        """End a connection; its task closes nothing if it has not begun."""
        self._tasks[task].writer.transport.abort()
        task.cancel()
        self._forget(task)

    def _forget(self, task: "asyncio.Task[None]") -> None:
        self._tasks.pop(task, None)
        self._silent.pop(task, None)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._answer(reader, writer)
            writer.close()
            await _within(RESPONSE_S, writer.wait_closed())
        except (OSError, TimeoutError, EOFError):  # the client is slow, or has gone
            pass
        finally:
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            method, path = await self._request(reader)
            if (task := asyncio.current_task()) is not None:
                self._silent.pop(task, None)
            page = self._page(method, path, writer)
            body = await _within(RESPONSE_S, self._made(page))
        except _BadRequest as error:
            writer.write(_response(error.status))
            await _within(RESPONSE_S, writer.drain())
            return
        except PageUnavailable as error:
            writer.write(_response(HTTPStatus.SERVICE_UNAVAILABLE, f"{error}\n".encode()))
            await _within(RESPONSE_S, writer.drain())
            return
        size = sum(map(len, body))
        async with asyncio.timeout(RESPONSE_S):
            writer.write(_head(HTTPStatus.OK, page.content_type, size))
            for piece in body if method == "GET" else ():
                writer.write(piece)
                await writer.drain()

    async def _request(self, reader: asyncio.StreamReader) -> tuple[str, str]:
        """Method and path of a request; its headers are read and do not matter."""
        try:
            head = await _within(self._request_s, reader.readuntil(b"\r\n\r\n"))
        except asyncio.LimitOverrunError:
            raise _BadRequest(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE) from None
        words = head.partition(b"\r\n")[0].split(b" ")
        if len(words) != 3 or not words[2].startswith(b"HTTP/1.") or not words[1].isascii():
            raise _BadRequest(HTTPStatus.BAD_REQUEST)
        return words[0].decode("latin-1"), words[1].decode().partition("?")[0]

    def _page(self, method: str, path: str, writer: asyncio.StreamWriter) -> HttpPage:
        if (page := self._pages.get(path)) is None:
            raise _BadRequest(HTTPStatus.NOT_FOUND)
        if method not in ("GET", "HEAD"):
            raise _BadRequest(HTTPStatus.METHOD_NOT_ALLOWED)
        if page.is_local and not is_local_client(writer):
            raise _BadRequest(HTTPStatus.FORBIDDEN)
        return page

    async def _made(self, page: HttpPage) -> list[bytes]:
        try:
            return [piece async for piece in page.make()]
        except PageUnavailable:
            raise
        except Exception as error:
            if type(error) not in self._complained:
                self._complained.add(type(error))
                log.exception("a page of metrics could not be made")
            raise _BadRequest(HTTPStatus.INTERNAL_SERVER_ERROR) from error


def is_local_client(writer: asyncio.StreamWriter) -> bool:
    """Whether a client is on this machine."""
    peer, own = writer.get_extra_info("peername"), writer.get_extra_info("sockname")
    return is_on_this_machine(peer, own)


async def _within(seconds: float, work: Awaitable[T]) -> T:
    async with asyncio.timeout(seconds):
        return await work


def _head(status: HTTPStatus, content_type: str, size: int) -> bytes:
    return (
        f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {content_type}\r\n"
        f"Content-Length: {size}\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n"
    ).encode()


def _response(status: HTTPStatus, text: bytes = b"") -> bytes:
    body = text or _REASONS[status].encode()
    return _head(status, TEXT, len(body)) + body
