"""What all consumers share: fetch, next, messages, run."""

import asyncio
import logging
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, Self

from roquet.client.background import stop
from roquet.client.config import ConsumerConfig
from roquet.client.handling import Handler, workers
from roquet.client.inbox import Inbox
from roquet.client.offsets import Offsets
from roquet.client.pulling import Puller, Taste
from roquet.client.reader import QueueReader
from roquet.client.received import ReceivedMessage
from roquet.client.session import Session
from roquet.model.errors import CallError, UsageError
from roquet.model.names import check_group, is_system_group
from roquet.model.queue import MessageQueue
from roquet.model.subscription import ConsumerData, ConsumeType, HeartbeatData
from roquet.net.clock import every

log = logging.getLogger(__name__)

FETCH_TIMEOUT_MS: Final = 5_000
"""How long a fetch waits by itself: Java's poll does."""


class Consumer:
    """A member of a group: holds queues, and hands out what they hold.

    Four words read: `fetch` ends, `next` is one, `messages` never ends, `run` does it for you. A
    message that nobody acknowledges holds the progress of its queue back, and comes again.
    """

    _consume_type: ConsumeType
    _saves_progress: bool

    def __init__(
        self, namesrv: str | Sequence[str] | None, group: str, config: ConsumerConfig
    ) -> None:
        if is_system_group(check_group(group)):
            raise UsageError(f"group {group} is the system's own: choose another name")
        self.group = group
        self._config = config
        self._strategy = config.find_strategy()
        self._session = Session(namesrv, config)
        self._offsets = Offsets(self._session, config, group)
        self._puller = Puller(self._session, config, group, saves_progress=self._saves_progress)
        self._inbox = Inbox()
        self._readers: dict[MessageQueue, QueueReader] = {}
        self._tastes: dict[str, Taste] = {}
        self._running: set[asyncio.Task[None]] = set()

    @property
    def client_id(self) -> str:
        """What brokers know this member by."""
        return self._session.identity.client_id

    @property
    def subscriptions(self) -> Mapping[str, str]:
        """Topics, and which of their messages are wanted."""
        return {topic: taste.subscription.sub_string for topic, taste in self._tastes.items()}

    def assignment(self) -> Sequence[MessageQueue]:
        """The queues that are this member's now."""
        return sorted(self._readers)

    async def start(self) -> None:
        """Open for work; `async with` does this."""
        self._session.start(self._data)

    def stop(self) -> None:
        """Hand out nothing more: `run` and `messages` end. A handler may call this."""
        self._inbox.close()

    async def close(self) -> None:
        """Leave the group in good order.

        Nothing new is begun, handlers at work may end, progress is saved, the brokers are told.
        """
        if not self._session.is_open:
            return
        self._session.identity.check_process()
        self.stop()
        try:
            await self._finish_running()
            await self._release(list(self._readers))
            await self._session.membership.leave(consumer=self.group)
        finally:
            await self._session.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def next(self, timeout_ms: int | None = None) -> ReceivedMessage | None:
        """The next message; None when none came in time, or the consumer is closed."""
        self._session.check()
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                return await self._inbox.take()
        except TimeoutError:
            return None

    async def fetch(
        self, count: int, timeout_ms: int = FETCH_TIMEOUT_MS
    ) -> Sequence[ReceivedMessage]:
        """So many messages, or fewer when the time is over."""
        clock = self._config.clock
        deadline_ms = clock.monotonic_ms() + timeout_ms
        found: list[ReceivedMessage] = []
        while len(found) < count:
            left_ms = max(deadline_ms - clock.monotonic_ms(), 0)
            message = self._inbox.pop() or await self.next(left_ms)
            if message is None:
                break
            found.append(message)
        return found

    async def messages(self) -> AsyncIterator[ReceivedMessage]:
        """One message after the other, until the consumer is closed."""
        self._session.check()
        while (message := self._inbox.pop() or await self._inbox.take()) is not None:
            yield message

    async def run(self, handler: Handler) -> None:
        """Hand every message to a function, until `stop`, `close` or a SIGTERM.

        When the function returns, the message is acknowledged; when it raises, the message comes
        again after a pause. An `async def` runs on the event loop, a plain `def` in threads.
        """
        self._session.check()
        work = workers(handler, self._inbox, self._config.concurrency)
        task = asyncio.create_task(work.run(), name=f"handlers of {self.group}")
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        try:
            with _on_sigterm(self.stop):
                await asyncio.shield(task)
        except asyncio.CancelledError:
            await stop(task)
            raise

    async def _finish_running(self) -> None:
        """Let handlers end; those who take too long are left behind."""
        running = self._running - {asyncio.current_task()}
        if running:
            _, late = await asyncio.wait(running, timeout=self._config.close_timeout_ms / 1000)
            if late:
                log.warning("handlers still at work after %d ms", self._config.close_timeout_ms)
            await stop(*late)

    # The queues we hold.

    def _hold(self, queue: MessageQueue, offset: int) -> None:
        """Read a queue from an offset on."""
        self._readers[queue] = QueueReader(
            queue,
            offset,
            self._tastes[queue.topic],
            self._inbox,
            self._puller,
            self._session.background,
        )

    async def _release(self, queues: Sequence[MessageQueue]) -> None:
        """Read these no more, and save how far they are."""
        readers = [self._readers[queue] for queue in queues]
        for reader in readers:
            reader.release()
        if self._saves_progress:
            await asyncio.gather(*map(self._save_last, readers))
        for reader in readers:
            self._readers.pop(reader.queue, None)

    async def _save_last(self, reader: QueueReader) -> None:
        try:
            await self._offsets.commit(reader.queue, reader.window.committable)
        except CallError as error:
            log.warning("progress of %s is not saved, it comes again: %s", reader.queue, error)

    async def _keep_saving(self) -> None:
        """Save progress, for ever."""
        await every(self._config.save_period_ms, lambda _: self._save(), self._config.clock)

    async def _save(self) -> None:
        """Tell the brokers how far each queue is, where that has changed."""
        for reader in list(self._readers.values()):
            progress = reader.window.committable
            if reader.is_held and progress != reader.saved:
                try:
                    await self._offsets.tell(reader.queue, progress)
                except CallError as error:
                    log.debug("progress of %s will be saved later: %s", reader.queue, error)
                    continue
                reader.saved = progress

    def _data(self) -> HeartbeatData:
        subscriptions = [taste.subscription for taste in self._tastes.values()]
        data = ConsumerData(
            group_name=self.group,
            consume_type=self._consume_type,
            consume_from_where=self._config.consume_from.on_the_wire,
            subscription_data_set=subscriptions,
        )
        return HeartbeatData(client_id=self.client_id, consumer_data_set=[data])


@contextmanager
def _on_sigterm(act: Callable[[], object]) -> Iterator[None]:
    """Act on SIGTERM instead of dying, where nobody else has a say in it."""
    ours = (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    )
    loop = asyncio.get_running_loop()
    try:
        if ours:
            loop.add_signal_handler(signal.SIGTERM, act)
    except NotImplementedError:  # Windows
        ours = False
    try:
        yield
    finally:
        if ours:
            loop.remove_signal_handler(signal.SIGTERM)
