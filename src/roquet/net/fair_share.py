"""Fair share: which requests held the event loop, for how long, and what was done about it."""

from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, Final

from roquet.log_records import logger
from roquet.net.clock import SYSTEM_CLOCK, Clock
from roquet.rules.fair_share import LOG_AFTER_MS, pause_end_ms
from roquet.wire.codes import RequestCode

log = logger(__name__)

LOG_MS: Final = 10_000
"""Between two lines in the log: who holds the loop may do it again and again."""

FREQUENT_CODES: Final = frozenset(
    int(code)
    for code in (
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.CONSUMER_SEND_MSG_BACK,
        RequestCode.PULL_MESSAGE,
        RequestCode.LITE_PULL_MESSAGE,
        RequestCode.POP_MESSAGE,
        RequestCode.ACK_MESSAGE,
        RequestCode.BATCH_ACK_MESSAGE,
        RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
        RequestCode.QUERY_CONSUMER_OFFSET,
        RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
    )
)
"""Requests that come for every message: small ones are served several at a time without a look at
the clock."""


class FairShare:
    """What slow requests of all connections of a server have taken."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._free_ms = 0
        self._logged_ms: int | None = None
        self._unlogged = 0
        self.count = 0
        """How many requests have held the loop for longer than they may."""
        self.longest_ms = 0
        """How long the longest of all requests held it that were measured."""
        self.latest = ""
        """The latest of those that held it for longer than they may."""

    def pause_ms(self, code: int, size: int, address: str, held_ms: int) -> int:
        """Note a request that has just been served; for how long its connection has to wait."""
        now_ms = self._clock.monotonic_ms()
        self.longest_ms = max(self.longest_ms, held_ms)
        if held_ms > LOG_AFTER_MS:
            self._tell(f"code {code} of {address}, body of {size} bytes, {held_ms} ms", now_ms)
        end_ms = pause_end_ms(self._free_ms, now_ms, held_ms, is_common=code in FREQUENT_CODES)
        if end_ms > now_ms:
            self._free_ms = end_ms
        return end_ms - now_ms

    def timed(
        self, work: Coroutine[Any, Any, bytes | None], note: Callable[[int], object]
    ) -> Awaitable[bytes | None]:
        """The same work, of which `note` learns how many ms each step of it held the loop."""
        return _Timed(work, self._clock, note)

    def _tell(self, request: str, now_ms: int) -> None:
        self.count += 1
        self.latest = request
        if self._logged_ms is not None and now_ms - self._logged_ms < LOG_MS:
            self._unlogged += 1
            return
        log.warning(
            "a request held all others up: %s; since the last such line there were %d more",
            self.latest,
            self._unlogged,
        )
        self._logged_ms, self._unlogged = now_ms, 0


class _Timed:
    """An awaitable that measures each step of a coroutine, and leaves the pauses out."""

    def __init__(
        self,
        work: Coroutine[Any, Any, bytes | None],
        clock: Clock,
        note: Callable[[int], object],
    ) -> None:
        self._work = work
        self._clock = clock
        self._note = note

    def __await__(self) -> Generator[Any, Any, bytes | None]:
        error: BaseException | None = None
        while True:
            begun_ms = self._clock.monotonic_ms()
            try:
                waited = self._work.send(None) if error is None else self._work.throw(error)
            except StopIteration as end:
                found: bytes | None = end.value
                return found
            finally:
                self._note(self._clock.monotonic_ms() - begun_ms)
            error = None
            try:
                yield waited
            except BaseException as raised:
                error = raised
