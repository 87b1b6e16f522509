"""Tail: a topic's new messages as they come, at a rate that a page can show.

Queues are read with long polls. Every `PERIOD_MS` the newest matching messages of that time leave
as one update, at most `rate` a second; others are counted. A tail that falls behind jumps to the
end of the queue, so that neither memory nor delay grows with the topic's rate.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from typing import Final

import msgspec

from roquet.admin import messages
from roquet.client.pull import PullConsumer
from roquet.dashboard.facts.messages import PULL_COUNT, MessageFilter
from roquet.dashboard.masking import MaskRule
from roquet.model.errors import CallRefused, RecordError, RoquetError, UsageError
from roquet.model.message import StoredMessage
from roquet.model.names import check_topic
from roquet.model.queue import MessageQueue
from roquet.net.clock import SYSTEM_CLOCK, Clock

PERIOD_MS: Final = 250
"""Time between two updates: smooth for eyes, and few enough events for a browser."""

RATE: Final = 40
"""Messages a second that are shown by default; eyes follow fewer."""

RATE_MAX: Final = 400

QUEUES_MAX: Final = 256
"""Queues of one tail: each has a pull that waits at its broker."""

SUSPEND_MS: Final = 5_000
"""Time that a pull waits for a message; then an empty update shows that the tail is alive."""

BEHIND_MAX: Final = 4 * PULL_COUNT
"""Messages by which a reader may be behind before it jumps to the end."""

TAIL_BODIES_MAX: Final = 1024 * 1024
"""Bytes of the bodies that one pull adds to an update; the others are cut."""

ERROR_PAUSE_MS: Final = 1_000


class TailUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """New messages since the last update; counts are since the tail began."""

    messages: Sequence[StoredMessage]
    """Oldest first."""
    seen: int
    """Messages that the filter was asked about; without those that brokers left out."""
    matched: int
    shown: int
    jumped: int
    """Offsets that were not read because the tail was behind."""
    problem: str = ""
    """The last error of a queue since the last update; empty without one."""


class MessageTail:
    """The live tail of one topic; `updates` reads it until its iterator is closed."""

    def __init__(
        self,
        reader: PullConsumer,
        topic: str,
        wanted: MessageFilter,
        rules: Sequence[MaskRule],
        *,
        rate: int = RATE,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._reader = reader
        self._topic = check_topic(topic)
        self._wanted = wanted
        self._rules = rules
        self._clock = clock
        each = max(1, min(rate, RATE_MAX) * PERIOD_MS // 1000)
        self._waiting: deque[StoredMessage] = deque(maxlen=each)
        self._seen = self._matched = self._shown = self._jumped = 0
        self._problem = ""
        self._news = asyncio.Event()

    async def updates(self) -> AsyncGenerator[TailUpdate, None]:
        """Updates, the first one at once; without news one every few seconds.

        Raises UsageError for an unknown topic, too many queues, and a filter that cannot be read.
        """
        queues = await messages.queues(self._reader, self._topic)
        if len(queues) > QUEUES_MAX:
            raise UsageError(f"{len(queues)} queues are too many for a tail; {QUEUES_MAX} can be")
        ends = await asyncio.gather(*map(self._reader.max_offset, queues))
        for queue, end in list(zip(queues, ends, strict=True))[:1]:  # a bad filter fails here
            await self._pull(queue, end, wait_ms=0)
        tasks = [
            asyncio.create_task(self._follow(queue, end), name=f"tail of {queue}")
            for queue, end in zip(queues, ends, strict=True)
        ]
        try:
            while True:
                yield self._take()
                with suppress(TimeoutError):
                    async with asyncio.timeout(SUSPEND_MS / 1000):
                        await self._news.wait()
                await self._clock.sleep(PERIOD_MS)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _take(self) -> TailUpdate:
        self._news.clear()
        shown = list(self._waiting)
        self._waiting.clear()
        self._shown += len(shown)
        problem, self._problem = self._problem, ""
        return TailUpdate(
            messages=shown,
            seen=self._seen,
            matched=self._matched,
            shown=self._shown,
            jumped=self._jumped,
            problem=problem,
        )

    async def _follow(self, queue: MessageQueue, offset: int) -> None:
        """Read one queue from an offset on, for ever; errors are reported and tried again."""
        while True:
            try:
                offset = await self._pull(queue, offset, wait_ms=SUSPEND_MS)
                await self._clock.sleep(PERIOD_MS)  # a pull for each message would cost too much
            except RoquetError as error:
                self._report(f"{queue}: {error}")
                await self._clock.sleep(ERROR_PAUSE_MS)
                with suppress(RoquetError):
                    # A topic that was made again, or a damaged record: go on at the end.
                    if isinstance(error, CallRefused | RecordError):
                        offset = await self._reader.max_offset(queue)

    async def _pull(self, queue: MessageQueue, offset: int, *, wait_ms: int) -> int:
        """Read what there is from an offset on; returns the offset to go on from."""
        result = await self._reader.pull(
            queue,
            offset,
            PULL_COUNT,
            tags=self._wanted.tags,
            sql=self._wanted.sql,
            wait_ms=wait_ms,
        )
        matching = [m for m in result.messages if self._wanted.matches(m, self._rules)]
        self._seen += len(result.messages)
        self._matched += len(matching)
        if matching:
            bodies = messages.BodyLimit(TAIL_BODIES_MAX)
            self._waiting.extend(map(bodies.cut, matching))
            self._news.set()
        if result.max_offset - result.next_offset > BEHIND_MAX:
            self._jumped += result.max_offset - result.next_offset
            self._news.set()
            return result.max_offset
        return result.next_offset

    def _report(self, problem: str) -> None:
        self._problem = problem
        self._news.set()
