"""QueueReader: reads one queue on, as far as flow control lets it, and knows its progress."""

import logging
from collections.abc import Sequence
from typing import Final, cast

from roquet.client.background import Alarm, Background, Trouble
from roquet.client.config import ConsumerConfig
from roquet.client.inbox import Inbox
from roquet.client.pulling import Puller, Taste
from roquet.client.received import Received, ReceivedMessage, records
from roquet.model.errors import RecordError, RoquetError
from roquet.model.queue import MessageQueue
from roquet.rules.progress import Window, retry_pause_ms
from roquet.wire.calls.pull import PullReply
from roquet.wire.codes import ResponseCode

log = logging.getLogger(__name__)

PULL_PAUSE_MS: Final = 1_000
"""After a pull that failed: the broker may be starting again."""

IDLE_PAUSE_MS: Final = 20
"""After an empty answer that came at once: some brokers do not hold a pull."""


class QueueReader:
    """One queue that a consumer holds, until it is stopped."""

    def __init__(
        self,
        queue: MessageQueue,
        offset: int,
        taste: Taste,
        inbox: Inbox,
        puller: Puller,
        beside: Background,
    ) -> None:
        self.queue = queue
        self.window = Window(offset)
        self.saved: int | None = None
        """The progress that the broker was told last."""
        self.is_held = True
        self._taste = taste
        self._inbox = inbox
        self._puller = puller
        self._config: ConsumerConfig = puller.config
        self._room = Alarm()
        self._is_waiting = False
        self._trouble = Trouble(f"pull of {queue}")
        self._beside = beside
        self._task = beside.start(self._run(), f"reader of {queue}")

    def release(self) -> None:
        """The queue is no longer ours: nothing that is in flight counts from now on."""
        self.is_held = False
        self._task.cancel()

    async def _run(self) -> None:
        """Pull, for ever."""
        while True:
            await self._until_there_is_room()
            before_ms = self._config.clock.monotonic_ms()
            try:
                found = self._take(await self._pull())
                self._trouble.over()
            except Exception as error:
                self._say(error)
                self._puller.doubt()
                await self._config.clock.sleep(PULL_PAUSE_MS)
                continue
            if not found and self._config.clock.monotonic_ms() - before_ms < IDLE_PAUSE_MS:
                await self._config.clock.sleep(IDLE_PAUSE_MS)

    def _say(self, error: Exception) -> None:
        if not isinstance(error, RoquetError):  # a fault of our own: show where
            log.error("pull of %s failed", self.queue, exc_info=error)
        self._trouble.tell(error)

    async def _until_there_is_room(self) -> None:
        config = self._config
        while self.window.is_full(config.in_flight_max, config.in_flight_bytes_max):
            self._is_waiting = True
            await self._room.wait(config.suspend_ms)

    async def _pull(self) -> PullReply:
        window = self.window
        progress = window.committable if self._puller.saves_progress else None
        reply = await self._puller.pull(
            self.queue,
            window.next_offset,
            self._taste,
            count=min(self._config.pull_count, self._config.in_flight_max - window.count),
            suspend_ms=self._config.suspend_ms,
            progress=progress,
        )
        if progress:
            self.saved = progress
        return reply

    def _take(self, reply: PullReply) -> bool:
        """Put what was found into the inbox; whether to ask again at once."""
        window = self.window
        next_offset = reply.next_begin_offset
        match reply.code:
            case ResponseCode.SUCCESS:
                messages = self._wanted(reply.body)
                window.take([(m.queue_offset, m.size) for m in messages], next_offset)
                self._inbox.put(messages)
                return True
            case ResponseCode.PULL_OFFSET_MOVED:
                log.warning(
                    "%s does not hold offset %d (it holds %d to %d): going on at %d",
                    self.queue, window.next_offset, reply.min_offset, reply.max_offset, next_offset,
                )  # fmt: skip
                window.move(next_offset)
                return False
            case _:
                window.move(next_offset)
                return reply.code == ResponseCode.PULL_RETRY_IMMEDIATELY

    def _wanted(self, body: bytes) -> Sequence[ReceivedMessage]:
        begin = self.window.next_offset
        found = [
            ReceivedMessage(self.queue, one, self)
            for one in records(body, self._damaged)
            if one.queue_offset >= begin  # a batch that is stored as one comes from its start on
        ]
        tags = self._taste.tags
        return found if tags is None else [message for message in found if message.tag in tags]

    def _damaged(self, offset: int, error: RecordError) -> None:
        log.error("%s offset %d cannot be read and is passed over: %s", self.queue, offset, error)

    # received.Holder

    def finish(self, message: Received) -> None:
        """The message is handled."""
        self.window.finish(message.queue_offset)
        if self._is_waiting:
            self._is_waiting = False
            self._room.ring()

    def again(self, message: Received, delay_ms: int | None) -> None:
        """The message comes again after a pause."""
        pause_ms = retry_pause_ms(message.tries) if delay_ms is None else delay_ms
        message.unsettle()
        self._beside.start(self._again(message, pause_ms), f"next try of {message}")

    async def _again(self, message: Received, pause_ms: int) -> None:
        await self._config.clock.sleep(pause_ms)
        if self.is_held:
            self._inbox.put_first(cast("ReceivedMessage", message))
