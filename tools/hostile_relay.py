"""HostileRelay: between a client and its servers; makes every name in their answers hostile.

What a genuine or foreign server might tell is not limited to what ours lets in. Each marker in an
answer gets the hostile text behind it, remarks as well; in requests it is taken away again, so the
servers know what is meant. Addresses of brokers become those of relays.
"""

import asyncio
import json
import re
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from msgspec.structs import replace

from roquet.wire.command import Command, decode, encode
from roquet.wire.frame import FrameReader

HOSTILE: Final = (
    "\n2026-01-01 ERROR forged\x1b[31m\x1b]8;;http://x\x07\x1b]52;c;eA==\x07\x9b2J\u202e[red][/]"
    "<script>'\"\t\u200b\x7f\r{x}$x$"
)

MARKERS: Final = re.compile(r"broker-a(?!\w)|DefaultCluster|(?<!%)evil[a-z]*")

Change = Callable[[str], str]


class HostileRelay:
    """Relays to several servers, each on a port of its own, in a thread."""

    def __init__(self, *servers: str) -> None:
        self._servers = servers
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._listening: list[asyncio.Server] = []
        self.addresses: dict[str, str] = {}

    def __enter__(self) -> "HostileRelay":
        self._thread.start()
        for server in self._servers:
            opening = asyncio.run_coroutine_threadsafe(self._open(server), self._loop)
            self.addresses[server] = opening.result(10)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _close(self) -> None:
        for listening in self._listening:
            listening.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await asyncio.sleep(0)  # transports close a turn later

    async def _open(self, server: str) -> str:
        host, _, port = server.rpartition(":")

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            there, back = await asyncio.open_connection(host, int(port))
            try:
                with suppress(OSError, asyncio.CancelledError):
                    await asyncio.gather(
                        _pass(reader, back, self._to_server), _pass(there, writer, self._to_client)
                    )
            finally:
                back.close()
                writer.close()

        listening = await asyncio.start_server(serve, "127.0.0.1", 0)
        self._listening.append(listening)
        return f"127.0.0.1:{listening.sockets[0].getsockname()[1]}"

    def _to_client(self, text: str) -> str:
        for server, relay in self.addresses.items():
            if text == server:
                return relay
        return MARKERS.sub(lambda found: found[0] + HOSTILE, text)

    @staticmethod
    def _to_server(text: str) -> str:
        return text.replace(HOSTILE, "")


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, change: Change) -> None:
    frames = FrameReader()
    while chunk := await reader.read(65_536):
        for frame in frames.feed(chunk):
            writer.write(encode(_changed(decode(frame), change)))
        await writer.drain()
    writer.close()


def _changed(command: Command, change: Change) -> Command:
    remark = command.remark
    if remark is not None and command.is_response:
        remark += HOSTILE
    fields = {name: change(value) for name, value in command.ext.items()}
    return replace(command, remark=remark, fields=fields, body=_body(command.body, change))


def _body(body: bytes, change: Change) -> bytes:
    if body[:1] not in {b"{", b"["}:
        return body
    # Java's loose JSON has bare numbers as keys: {0:"127.0.0.1:10911"}.
    text = re.sub(r"([{,])(-?\d+):", r'\1"\2":', body.decode("utf-8", "surrogatepass"))
    try:
        return json.dumps(_deep(json.loads(text), change)).encode()
    except ValueError:
        return body


def _deep(value: Any, change: Change) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {change(key): _deep(item, change) for key, item in value.items()}
    return [_deep(item, change) for item in value] if isinstance(value, list) else value
