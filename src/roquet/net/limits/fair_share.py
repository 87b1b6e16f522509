"""Fair share: requests that hold the event loop for long, logged and followed by a pause."""

from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, Final

from roquet.log_records import logger
from roquet.net.clock import SYSTEM_CLOCK, Clock
from roquet.rules.admission import LOG_AFTER_MS, pause_end_ms
from roquet.wire.codes import RequestCode

log = logger(__name__)

LOG_MS: Final = 10_000
"""Ms between two log lines about slow requests."""

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
"""Codes of requests that clients send for every message: small ones are served several at a time
without reading the clock."""


class FairShare:
    """Event-loop time that slow requests of all connections of a server have taken."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._free_ms = 0
        self._logged_ms: int | None = None
        self._unlogged = 0
        self.count = 0
        """Requests that held the loop for longer than LOG_AFTER_MS."""
        self.longest_ms = 0
        """Ms for which the longest measured request held the loop."""
        self.latest = ""
        """Description of the latest request that held the loop for too long."""

    def pause_ms(self, code: int, size: int, address: str, held_ms: int) -> int:
        """Note a request that has just been served.

        Returns how many ms its connection has to wait.
        """
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
        """Wrap a coroutine: `note` gets the ms for which each step held the loop."""
        return _Timed(work, self._clock, note)

    def _tell(self, request: str, now_ms: int) -> None:
        self.count += 1
        self.latest = request
        if self._logged_ms is not None and now_ms - self._logged_ms < LOG_MS:
            self._unlogged += 1
            return
        log.warning(
            "a request held up all others: %s; %d more since the last such line",
            self.latest,
            self._unlogged,
        )
        self._logged_ms, self._unlogged = now_ms, 0


class _Timed:
    """An awaitable that measures each step of a coroutine, without the waits between steps."""

    def __init__(
        self, work: Coroutine[Any, Any, bytes | None], clock: Clock, note: Callable[[int], object]
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
            except GeneratorExit:  # dropped with its loop, and the work perhaps before it
                self._work.close()
                raise
            except BaseException as raised:
                error = raised
