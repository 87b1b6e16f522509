"""OutstandingSends: sends without a receipt or error yet, and how a flush waits for them."""

import asyncio
from types import TracebackType


class FlushEpoch:
    """The sends between two flushes; `with` counts one of them."""

    __slots__ = ("_count", "_ended")

    def __init__(self) -> None:
        self._count = 0
        self._ended: asyncio.Event | None = None

    def __enter__(self) -> None:
        self._count += 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._count -= 1
        if self._ended is not None and not self._count:
            self._ended.set()

    @property
    def is_idle(self) -> bool:
        """Whether all of them have ended."""
        return not self._count

    async def ended(self) -> None:
        """Wait until all have ended; only for a past epoch, which gets no new sends."""
        if self._count:
            if self._ended is None:
                self._ended = asyncio.Event()
            await self._ended.wait()


class OutstandingSends:
    """All sends of one producer: `with outstanding.current:` around each."""

    def __init__(self) -> None:
        self.current = FlushEpoch()
        self._past: list[FlushEpoch] = []

    async def flushed(self, timeout_ms: int | None) -> bool:
        """Wait for all earlier sends, up to a timeout; return whether all have ended."""
        self._past = [epoch for epoch in (*self._past, self.current) if not epoch.is_idle]
        self.current = FlushEpoch()
        waited = list(self._past)
        if not waited or timeout_ms == 0:
            return not waited
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                for epoch in waited:
                    await epoch.ended()
        except TimeoutError:
            return False
        return True
