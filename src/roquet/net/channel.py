"""Channel: await channel.call(call) gives call's own reply type."""

import asyncio
from typing import Final, Self

from roquet.model.errors import ConnectFailed
from roquet.net.address import failure
from roquet.net.clock import SYSTEM_CLOCK, Clock
from roquet.net.link import Link
from roquet.net.router import Router

CONNECT_TIMEOUT_MS: Final = 3_000
"""Longer than a lost packet takes to be sent again, short enough to try another broker."""


class Channel(Link):
    """The client's end of a connection.

    Calls that the other end makes on it are served by `router`.
    """

    @classmethod
    async def connect(
        cls,
        host: str,
        port: int,
        *,
        router: Router | None = None,
        clock: Clock = SYSTEM_CLOCK,
        timeout_ms: int = CONNECT_TIMEOUT_MS,
    ) -> Self:
        """A connection to a server; ConnectFailed when there is none."""
        loop = asyncio.get_running_loop()
        dispatch = (router or Router()).dispatch
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                _, channel = await loop.create_connection(lambda: cls(dispatch, clock), host, port)
        except TimeoutError as error:
            raise ConnectFailed(f"{host}:{port} did not answer within {timeout_ms} ms") from error
        except (OSError, UnicodeError) as error:  # a name like "a..b" is a UnicodeError
            raise ConnectFailed(f"cannot connect to {host}:{port}: {failure(error)}") from error
        return channel

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
