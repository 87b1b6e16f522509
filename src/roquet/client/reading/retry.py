"""What becomes of messages that failed: sent back to the broker, tried again here, or dropped.

A group's failed message goes back to its broker, which stores it in the group's retry topic once a
delay is over, or with the dead letters after the last try. When the broker cannot be asked, another
one is handed the message itself; when nobody can, it is tried again here: it is never lost.
"""

from bisect import bisect_left
from collections.abc import Callable
from typing import Final, Protocol

from roquet.client.config import ConsumerConfig
from roquet.client.connection.background import ErrorLogThrottle
from roquet.client.connection.session import Session
from roquet.client.reading.message import DEAD_LETTER, InboundMessage
from roquet.log_records import logger
from roquet.model import properties as names
from roquet.model.errors import ConnectFailed, RoquetError
from roquet.model.names import retry_topic
from roquet.model.queue import MessageQueue
from roquet.rules.consumption.progress import retry_pause_ms
from roquet.rules.delay.delay_levels import DEFAULT_LEVELS, retry_level
from roquet.wire.calls.send import Send, SendBack
from roquet.wire.records.record import encode_properties

log = logger(__name__)

SEND_BACK_TIMEOUT_MS: Final = 5_000
"""Of one send-back, as in Java."""

LOCAL_RETRY_MS: Final = 5_000
"""Before a message that could not be sent back is tried again here, as in Java."""

BROKERS_TRIED: Final = 2
"""That are handed a message which its own broker does not take back."""

INNER_PRODUCER: Final = "CLIENT_INNER_PRODUCER"
"""The producer group that genuine consumers send under."""

_NOT_PASSED_ON: Final = frozenset(
    {
        names.TRANSACTION_PREPARED,
        names.RECONSUME_TIME,
        names.MAX_RECONSUME_TIMES,
        names.REAL_TOPIC,
        names.REAL_QUEUE_ID,
        names.DELAY,
    }
)
"""Properties of one stay at a broker, which would mislead the next."""


def log_dead_letter(message: InboundMessage, group: str) -> None:
    """Say that a message has left for good; `roquet dlq` shows and resends it."""
    log.warning(
        "%r is a dead letter of group %s after %d %s", message, group, message.tries + 1,
        "try" if message.tries == 0 else "tries",
    )  # fmt: skip


class FailurePolicy(Protocol):
    """What a consumer does with messages that failed."""

    async def settle(self, message: InboundMessage, delay_ms: int | None) -> int | None:
        """Do it. None when the message has gone, else the ms until it is tried again here."""


def delay_level(delay_ms: int | None) -> int:
    """The first delay level that is at least so long; 0 lets the broker choose, DEAD stays -1."""
    if delay_ms is None:
        return 0
    if delay_ms < 0:
        return DEAD_LETTER
    return min(bisect_left(DEFAULT_LEVELS, delay_ms) + 1, len(DEFAULT_LEVELS))


class RetrySender:
    """The ways back to the brokers."""

    def __init__(self, session: Session, config: ConsumerConfig, group: str) -> None:
        self._session = session
        self._config = config
        self.group = group

    @property
    def retries_max(self) -> int | None:
        """Tries after the first one; None leaves them to the group's settings."""
        return self._config.retries_max

    async def send_back(self, message: InboundMessage, level: int) -> None:
        """Have the message's broker keep it for another try; CallError when it does not."""
        call = SendBack(
            offset=message.position,
            group=self.group,
            delay_level=level,
            origin_msg_id=message.message_id,
            origin_topic=message.whole_topic,
            max_reconsume_times=self.retries_max,
            broker_name=message.broker_name,
        )
        address = self._session.routes.leader(message.broker_name)
        await self._session.pool.call(address, call, SEND_BACK_TIMEOUT_MS)

    async def send_again(
        self, message: InboundMessage, times: int, level: int, retries_max: int | None
    ) -> None:
        """Store the message itself in the retry topic, as tried so many times; or CallError."""
        topic = retry_topic(self.group)
        routes, clock = self._session.routes, self._config.clock
        deadline_ms = clock.monotonic_ms() + self._config.timeout_ms
        await routes.find_writable(topic, 1, deadline_ms)
        queues = sorted(
            routes.writable(topic) or (), key=lambda queue: queue.broker_name == message.broker_name
        )
        reason: RoquetError = ConnectFailed(f"no queue of {topic} is known")
        for queue in queues[:BROKERS_TRIED]:
            try:
                call = self._again(message, queue, times, level, retries_max)
                await self._session.pool.call(
                    routes.leader(queue.broker_name), call, self._config.timeout_ms
                )
            except RoquetError as error:
                reason = error
            else:
                return
        raise reason

    def _again(
        self, message: InboundMessage, queue: MessageQueue, times: int, level: int, most: int | None
    ) -> Send:
        kept = {k: v for k, v in message.properties.items() if k not in _NOT_PASSED_ON}
        origin = kept.get(names.ORIGIN_MESSAGE_ID) or message.message_id
        system = {names.RETRY_TOPIC: message.whole_topic, names.ORIGIN_MESSAGE_ID: origin}
        if level > 0:
            system[names.DELAY] = str(level)
        body, sys_flag = message.stored_body
        return Send(
            body=body,
            producer_group=INNER_PRODUCER,
            topic=queue.topic,
            queue_id=queue.queue_id,
            sys_flag=sys_flag,
            born_timestamp=message.born_ms,
            flag=message.flag,
            properties=encode_properties({**kept, **system}).decode("utf-8", "surrogatepass"),
            reconsume_times=times,
            max_reconsume_times=most,
        )


class RetryByBroker:
    """A sharing group's: back to the broker."""

    def __init__(self, back: RetrySender, sent: Callable[[], object]) -> None:
        self._back = back
        self._sent = sent
        self._trouble = ErrorLogThrottle("sending failed messages back")

    async def settle(self, message: InboundMessage, delay_ms: int | None) -> int | None:
        """See Failures."""
        level = delay_level(delay_ms)
        try:
            await self._away(message, level)
        except RoquetError as error:
            self._trouble.tell(f"{error}; failed messages are tried again here")
            return LOCAL_RETRY_MS
        self._trouble.over()
        self._sent()
        self._log(message, level)
        return None

    def _log(self, message: InboundMessage, level: int) -> None:
        most = self._back.retries_max
        if level == DEAD_LETTER or (most is not None and message.tries >= most):
            log_dead_letter(message, self._back.group)
        elif most is None:
            log.info("%r is sent back: it comes again, while its group allows more tries", message)
        else:
            log.info("%r comes again: try %d of %d", message, message.tries + 2, most + 1)

    async def _away(self, message: InboundMessage, level: int) -> None:
        try:
            await self._back.send_back(message, level)
        except RoquetError as error:
            log.info("%r is handed to another broker, its own does not take it: %s", message, error)
        else:
            return
        times = message.tries + 1
        if level == DEAD_LETTER:  # more tries than are allowed: it is put with the dead letters
            await self._back.send_again(message, times, 0, retries_max=0)
        else:
            level = level or retry_level(message.tries)
            await self._back.send_again(message, times, level, self._back.retries_max)


class RetryOrdered:
    """An ordered queue's: the same message again, before any behind it; after its last try away."""

    def __init__(self, config: ConsumerConfig, back: RetrySender | None) -> None:
        self._config = config
        self._back = back
        """None when broadcasting: then the last try is the end."""
        self._trouble = ErrorLogThrottle("giving up ordered messages")

    async def settle(self, message: InboundMessage, delay_ms: int | None) -> int | None:
        """See Failures."""
        most = self._config.retries_max
        is_last = delay_ms == DEAD_LETTER or (most is not None and message.tries >= most)
        if is_last and await self._has_left(message, is_dead=delay_ms == DEAD_LETTER):
            return None
        if delay_ms is None or delay_ms == DEAD_LETTER:
            return self._config.ordered_pause_ms
        return delay_ms

    async def _has_left(self, message: InboundMessage, *, is_dead: bool) -> bool:
        if self._back is None:
            log.error("%r is dropped after %d tries", message, message.tries + 1)
            return True
        try:
            if is_dead:
                await self._back.send_back(message, DEAD_LETTER)
            else:  # as Java does: the broker sees by the group's locks that its tries are over
                times, level = message.tries, retry_level(message.tries)
                await self._back.send_again(message, times, level, self._config.retries_max)
        except RoquetError as error:
            self._trouble.tell(error)
            return False
        self._trouble.over()
        log_dead_letter(message, self._back.group)
        return True


class RetryLocally:
    """Of a consumer that is in no sharing group: again after a growing pause."""

    def __init__(self, back: RetrySender) -> None:
        self._back = back

    async def settle(self, message: InboundMessage, delay_ms: int | None) -> int | None:
        """See Failures."""
        if delay_ms == DEAD_LETTER:
            try:
                await self._back.send_back(message, DEAD_LETTER)
            except RoquetError as error:
                log.warning("%r is no dead letter yet: %s", message, error)
                return LOCAL_RETRY_MS
            log_dead_letter(message, self._back.group)
            return None
        return retry_pause_ms(message.tries) if delay_ms is None else delay_ms


class DropFailed:
    """A broadcasting group's, where nobody keeps a member's failures: logged and gone, as Java."""

    async def settle(self, message: InboundMessage, delay_ms: int | None) -> int | None:
        """See Failures."""
        del delay_ms
        log.error("%r failed and is dropped: a broadcast message is not sent back", message)
        return None
