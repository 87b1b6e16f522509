"""A proxy in front of an object store that answers some requests badly, or not at all."""

import asyncio
import json
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import Enum, auto
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

BODY_MAX = 64 * 1024 * 1024
"""Bytes of a request, its body included."""

ROOT = Path(__file__).parents[2]

PAIR_S = 5
"""Most seconds that a request whose condition is ignored waits for another one of its path."""

ADD, CLEAR, FAULTS = "/-/add", "/-/clear", "/-/faults"
"""Paths of requests to the proxy itself."""


class Fault(Enum):
    """A way in which a request goes wrong."""

    ERROR = auto()
    """An answer of 500; the server never gets it."""
    SLOW_DOWN = auto()
    """An answer of 503; the server never gets it."""
    RESET = auto()
    """The connection is reset in the middle of the body."""
    LOST_ANSWER = auto()
    """The server has done it, and the connection is reset instead of the answer."""
    FAILED_ANSWER = auto()
    """The server has done it, and the answer is 500."""
    EXPIRED = auto()
    """An answer of 400 that says that the token has expired; the server never gets it."""
    SKEWED = auto()
    """An answer of 403 that says that the clock of the request is wrong."""
    ELSEWHERE = auto()
    """An answer of 301: the bucket is in another region."""
    FORBIDDEN = auto()
    """An answer of 403: access is refused."""
    UNCONDITIONAL = auto()
    """The server does it whether or not the object is there: the condition is ignored.

    A request with a condition waits for another one of its path, so both have looked before."""


ANSWERS = {
    Fault.ERROR: (500, "Internal Server Error", "InternalError"),
    Fault.FAILED_ANSWER: (500, "Internal Server Error", "InternalError"),
    Fault.SLOW_DOWN: (503, "Slow Down", "SlowDown"),
    Fault.ELSEWHERE: (301, "Moved Permanently", "PermanentRedirect"),
    Fault.FORBIDDEN: (403, "Forbidden", "AccessDenied"),
    Fault.SKEWED: (403, "Forbidden", "RequestTimeTooSkewed"),
    Fault.EXPIRED: (400, "Bad Request", "ExpiredToken"),
}


class Request(NamedTuple):
    """One request of a client."""

    method: str
    path: str
    head: bytes
    length: int
    is_chunked: bool
    expects: bool


class _Rule:
    def __init__(self, fault: Fault, method: str, part: str, times: int, skip: int) -> None:
        self.fault, self.method, self.part = fault, method, part
        self.left, self.skip = times, skip

    def applies(self, request: Request) -> bool:
        if self.left <= 0 or request.method != self.method:
            return False
        if not re.search(self.part, request.path):
            return False
        self.skip -= 1
        if self.skip >= 0:
            return False
        self.left -= 1
        return True


class Proxy:
    """The proxy, as its own process runs it."""

    condition = b"if-none-match:"
    """The header of a request that creates an object, and replaces none."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._rules: list[_Rule] = []
        self._faults: list[tuple[str, str, str]] = []
        self._alone: dict[str, asyncio.Event] = {}

    def _control(self, path: str, body: bytes) -> bytes:
        """Obey a request of the test."""
        if path == ADD:
            fault, *rest = json.loads(body)
            self._rules.append(_Rule(Fault[fault], *rest))
        elif path == CLEAR:
            self._rules.clear()
            self._faults.clear()
        answer = json.dumps(self._faults).encode()
        return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(answer) + answer

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request; its connection is closed then."""
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            await self._serve(reader, writer)
        with suppress(ConnectionError):
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = _parse(await reader.readuntil(b"\r\n\r\n"))
        if request.path in (ADD, CLEAR, FAULTS):
            writer.write(self._control(request.path, await _body(reader, request)))
            return
        rule = next((rule for rule in self._rules if rule.applies(request)), None)
        fault = None if rule is None else rule.fault
        if fault is not None:
            self._faults.append((fault.name, request.method, request.path))
        if request.expects:
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if fault is Fault.RESET:
            await reader.readexactly(request.length // 2)
            writer.transport.abort()
            return
        body = await _body(reader, request)
        if fault is Fault.UNCONDITIONAL:
            request, fault = await self._unconditional(request), None
        if fault is None or fault in (Fault.LOST_ANSWER, Fault.FAILED_ANSWER):
            answer = await self.forwarded(request, body)
        if fault is Fault.LOST_ANSWER:
            writer.transport.abort()
            return
        writer.write(answer if fault is None else self.error(fault, request))
        await writer.drain()

    async def _unconditional(self, request: Request) -> Request:
        """The request without its condition, once another of its path has come, or has not."""
        head = without(request.head, self.condition)
        if head != request.head:
            await self._paired(request.path)
        return request._replace(head=head)

    async def _paired(self, path: str) -> None:
        if (first := self._alone.pop(path, None)) is not None:
            first.set()
            return
        self._alone[path] = asyncio.Event()
        try:
            await asyncio.wait_for(self._alone[path].wait(), PAIR_S)
        except TimeoutError:
            del self._alone[path]

    async def forwarded(self, request: Request, body: bytes) -> bytes:
        """The server's answer to a request."""
        reader, writer = await asyncio.open_connection(self._host, self._port)
        writer.write(request.head + body)
        answer = await reader.read()
        writer.close()
        return answer

    def error(self, fault: Fault, request: Request) -> bytes:
        """The answer to a request that goes wrong in this way."""
        status, reason, code = ANSWERS[fault]
        return xml_error(status, reason, code, request.method)


def _parse(head: bytes) -> Request:
    """The request, with a head that asks the server to close the connection."""
    line, *fields = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    method, path, _ = line.decode("latin-1").split(" ")
    values = {
        name.strip().lower(): value.strip()
        for name, _, value in (field.decode("latin-1").partition(":") for field in fields)
    }
    hop = (b"connection:", b"expect:")
    kept = [field for field in fields if not field.lower().startswith(hop)]
    return Request(
        method=method,
        path=unquote(path),
        head=b"\r\n".join([line, *kept, b"Connection: close", b"", b""]),
        length=int(values.get("content-length", "0")),
        is_chunked=values.get("transfer-encoding", "") == "chunked",
        expects="100-continue" in values.get("expect", "").lower(),
    )


def without(head: bytes, field: bytes) -> bytes:
    """A request's head without a field."""
    lines = head.split(b"\r\n")
    return b"\r\n".join(line for line in lines if not line.lower().startswith(field))


async def _body(reader: asyncio.StreamReader, request: Request) -> bytes:
    if not request.is_chunked:
        return await reader.readexactly(request.length)
    parts = []
    while True:
        line = await reader.readuntil(b"\r\n")
        part = await reader.readexactly(int(line.split(b";")[0], 16) + 2)
        parts.append(line + part)
        if part == b"\r\n":
            return b"".join(parts)


def xml_error(status: int, reason: str, code: str, method: str = "GET") -> bytes:
    """An answer that names the error as the XML of S3, and of Google's XML API, does."""
    text = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{reason}</Message></Error>"
    body = "" if method == "HEAD" else text
    return answered(f"{status} {reason}", body, "Content-Type: application/xml")


def answered(status: str, body: str, *fields: str) -> bytes:
    """An answer after which the connection is closed."""
    head = [f"HTTP/1.1 {status}", *fields, "Connection: close", f"Content-Length: {len(body)}"]
    return "\r\n".join([*head, "", body]).encode()


class FaultProxy:
    """A running proxy, and what a test lets happen in it."""

    def __init__(self, url: str) -> None:
        self.url = url

    def add(
        self, fault: Fault, method: str = "PUT", part: str = "", *, times: int = 1, skip: int = 0
    ) -> None:
        """Let this happen to so many requests of a method, after others.

        `part` is a pattern of a part of their paths, with the query.
        """
        self._ask(ADD, json.dumps([fault.name, method, part, times, skip]).encode())

    def clear(self) -> None:
        """Let nothing happen any more, and forget what has happened."""
        self._ask(CLEAR)

    @property
    def faults(self) -> list[Fault]:
        """The faults that have happened, in order."""
        return [Fault[name] for name, _, _ in json.loads(self._ask(FAULTS))]

    def _ask(self, path: str, body: bytes = b"") -> bytes:
        with urllib.request.urlopen(f"{self.url}{path}", body, timeout=30) as reply:
            return bytes(reply.read())


@contextmanager
def fault_proxy(url: str, module: str = "tests.lake.fault_proxy") -> Iterator[FaultProxy]:
    """A proxy of the server at a URL, until the block ends; `module` runs it.

    It is a process of its own: deltalake would not let a thread of this one answer.
    """
    command = [sys.executable, "-m", module, *url.removeprefix("http://").split(":")]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield FaultProxy(process.stdout.readline().strip())
        finally:
            process.kill()


async def main(proxy: Proxy) -> None:
    """Print the proxy's URL, and serve."""
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0, limit=BODY_MAX)
    sys.stdout.write(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(Proxy(sys.argv[1], int(sys.argv[2]))))
