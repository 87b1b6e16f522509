"""Retry of failed messages: sent back to the broker, tried again locally, or dropped.

A group's failed message goes back to its broker, which stores it in the group's retry topic after a
delay, or as a dead letter after the last try. When that broker cannot be reached, the message
itself is sent to another one; when none can, it is tried again locally. It is never lost. An
answer that it was stored less durably than promised counts once readers see it: a master under a
controller hides what another master may lack.
"""

from bisect import bisect_left
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from roquet.client.config import ConsumerConfig
from roquet.client.connection.background import ErrorLogThrottle
from roquet.client.connection.session import Session
from roquet.client.metrics import DEAD_LETTERS
from roquet.client.reading.message import DEAD_LETTER, InboundMessage
from roquet.log_records import logger
from roquet.model import properties as names
from roquet.model.errors import CallRefused, ConnectFailed, RoquetError
from roquet.model.names import retry_topic
from roquet.model.queue import MessageQueue
from roquet.rules.consumption.pull import retry_pause_ms
from roquet.rules.delay.delay_levels import DEFAULT_LEVELS, retry_level
from roquet.wire.calls.query import ViewMessage
from roquet.wire.calls.send import Send, SendBack, SendReply
from roquet.wire.codes import ResponseCode
from roquet.wire.records.message_id import parse_offset_message_id
from roquet.wire.records.record import decode, decode_properties, encode_properties

log = logger(__name__)

SEND_BACK_TIMEOUT_MS: Final = 5_000
"""Timeout of one send-back, as in Java."""

SEND_AGAIN_TIMEOUT_MS: Final = 6_000
"""Least timeout of a message that is sent to another broker, or to the same one: an answer that it
is less durable than promised comes after slaveTimeout or syncFlushTimeout, 3 and 5 s by default."""

LOCAL_RETRY_MS: Final = 5_000
"""Pause before a message that could not be sent back is tried again locally, as in Java."""

BROKERS_TRIED: Final = 2
"""Number of brokers to try when a message's own broker does not take it back."""

INNER_PRODUCER: Final = "CLIENT_INNER_PRODUCER"
"""The producer group under which RocketMQ's consumers send."""

_NOT_PASSED_ON: Final = frozenset(
    {
        names.TRANSACTION_PREPARED,
        names.RECONSUME_TIME,
        names.MAX_RECONSUME_TIMES,
        names.REAL_TOPIC,
        names.REAL_QUEUE_ID,
        names.DELAY,
        names.WAIT,
        names.POP_CK,
    }
)
"""Properties that belong to one stored copy, and would be wrong for the next one.

The brokers' own copies in retry topics say that nobody waits for disk and replicas.
"""


def _why(message: InboundMessage) -> str:
    return f": {message.dead_letter_reason}" if message.dead_letter_reason else ""


FailurePolicy: TypeAlias = Callable[[InboundMessage, int | None], Awaitable[int | None]]
"""Settles a failed message, by its delay as in `MessageOwner.retry`; returns None when it has left,
or the ms before a local retry."""


def delay_level(delay_ms: int | None) -> int:
    """The first delay level of at least this time; 0, the broker's choice, for None.

    DEAD_LETTER for a negative time.
    """
    if delay_ms is None:
        return 0
    if delay_ms < 0:
        return DEAD_LETTER
    return min(bisect_left(DEFAULT_LEVELS, delay_ms) + 1, len(DEFAULT_LEVELS))


class RetrySender:
    """Sends failed messages to the brokers."""

    def __init__(self, session: Session, config: ConsumerConfig, group: str) -> None:
        self._session = session
        self._config = config
        self.group = group

    @property
    def retries_max(self) -> int | None:
        """Retries of a message; None leaves the number to the group's settings."""
        return self._config.retries_max

    def note_dead_letter(self, message: InboundMessage) -> None:
        """Log that a message has become a dead letter; `roquet dlq` shows and resends it.

        It is counted under the topic that it was pulled from, as its tries are.
        """
        if (metrics := self._config.metrics) is not None:
            metrics.add(DEAD_LETTERS, 1, message.queue.topic, self.group)
        log.warning(
            "%r is a dead letter of group %s after %d %s%s", message, self.group, message.tries + 1,
            "try" if message.tries == 0 else "tries",
            _why(message),
        )  # fmt: skip

    async def send_back(self, message: InboundMessage, level: int) -> None:
        """Ask the message's broker to store it for another try; CallError when it does not.

        A dead letter with a reason is sent as a whole: a broker knows no reason of its own copy.
        """
        if level == DEAD_LETTER and message.dead_letter_reason is not None:
            try:
                await self.send_again(message, message.tries + 1, 0, retries_max=0)
            except RoquetError as error:
                log.info("%r is given up without its reason: %s", message, error)
            else:
                return
        call = SendBack(
            offset=message.position,
            group=self.group,
            delay_level=level,
            origin_msg_id=message.message_id,
            origin_topic=message.whole_topic,
            max_reconsume_times=self.retries_max,
            broker_name=message.broker_name,
        )
        operation = "dead_letter" if level == DEAD_LETTER else "nack"
        with self._session.settle_span(operation, message):
            await self._session.call(message.broker_name, call, SEND_BACK_TIMEOUT_MS)

    async def send_again(
        self, message: InboundMessage, times: int, level: int, retries_max: int | None
    ) -> None:
        """Store the message itself in the retry topic with its number of tries; or CallError.

        CallRefused when it was stored less durably than promised, and readers do not see it.
        """
        topic = retry_topic(self.group)
        routes, clock = self._session.routes, self._config.clock
        deadline_ms = clock.monotonic_ms() + self._config.timeout_ms
        timeout_ms = max(self._config.timeout_ms, SEND_AGAIN_TIMEOUT_MS)
        await routes.find_writable(topic, 1, deadline_ms)
        queues = sorted(
            routes.writable(topic) or (), key=lambda queue: queue.broker_name == message.broker_name
        )
        reason: RoquetError = ConnectFailed(f"no queue of {topic} is known")
        for queue in queues[:BROKERS_TRIED]:
            try:
                call = self._retry_call(message, queue, times, level, retries_max)
                address = routes.leader(queue.broker_name)
                operation = "nack" if retries_max != 0 else "dead_letter"
                with self._session.settle_span(operation, message):
                    reply = await self._session.pool.call(address, call, timeout_ms)
                    if reply.code != ResponseCode.SUCCESS:
                        await self._check_visible(call, address, reply)
            except RoquetError as error:
                reason = error
            else:
                return
        raise reason

    async def _check_visible(self, sent: Send, address: str, reply: SendReply) -> None:
        """Raise a RoquetError unless readers see what the reply says was stored.

        Apache's broker shows it in any case. No topic is named: the group's members may read what
        comes again to it, though not its retry topic as such.
        """
        _, position = parse_offset_message_id(reply.msg_id)
        view = ViewMessage(offset=position)
        shown = decode((await self._session.pool.call(address, view, self._config.timeout_ms)).body)
        keys = [
            decode_properties(properties).get(names.UNIQUE_KEY)
            for properties in (shown.properties, sent.properties.encode("utf-8", "surrogatepass"))
        ]
        if keys[0] != keys[1] or shown.body != sent.body:
            raise CallRefused(reply.code, reply.remark, definite=False)

    def _retry_call(
        self,
        message: InboundMessage,
        queue: MessageQueue,
        times: int,
        level: int,
        retries_max: int | None,
    ) -> Send:
        properties = {k: v for k, v in message.properties.items() if k not in _NOT_PASSED_ON}
        origin = properties.get(names.ORIGIN_MESSAGE_ID) or message.message_id
        system = {names.RETRY_TOPIC: message.whole_topic, names.ORIGIN_MESSAGE_ID: origin}
        if level > 0:
            system[names.DELAY] = str(level)
        if message.dead_letter_reason is not None:
            system[names.DEAD_LETTER_REASON] = message.dead_letter_reason
        body, sys_flag = message.stored_body
        return Send(
            body=body,
            producer_group=INNER_PRODUCER,
            topic=queue.topic,
            queue_id=queue.queue_id,
            sys_flag=sys_flag,
            born_timestamp=message.born_ms,
            flag=message.flag,
            properties=encode_properties({**properties, **system}).decode("utf-8", "surrogatepass"),
            reconsume_times=times,
            max_reconsume_times=retries_max,
        )


class RetryByBroker:
    """Policy of a clustering group: send the message back to the broker."""

    def __init__(self, sender: RetrySender, sent: Callable[[], object]) -> None:
        self._sender = sender
        self._sent = sent
        self._throttle = ErrorLogThrottle("sending failed messages back")

    async def __call__(self, message: InboundMessage, delay_ms: int | None) -> int | None:
        """See `FailurePolicy`."""
        level = delay_level(delay_ms)
        try:
            await self._send_to_broker(message, level)
        except RoquetError as error:
            self._throttle.report(f"{error}; failed messages are tried again here")
            return LOCAL_RETRY_MS
        self._throttle.clear()
        self._sent()
        self._log(message, level)
        return None

    def _log(self, message: InboundMessage, level: int) -> None:
        retries_max = self._sender.retries_max
        if level == DEAD_LETTER or (retries_max is not None and message.tries >= retries_max):
            self._sender.note_dead_letter(message)
        elif retries_max is None:
            log.info("%r is sent back: it comes again, while its group allows more tries", message)
        else:
            log.info("%r comes again: try %d of %d", message, message.tries + 2, retries_max + 1)

    async def _send_to_broker(self, message: InboundMessage, level: int) -> None:
        try:
            await self._sender.send_back(message, level)
        except RoquetError as error:
            log.info("%r is handed to another broker, its own does not take it: %s", message, error)
        else:
            return
        times = message.tries + 1
        if level == DEAD_LETTER:  # more tries than allowed: the broker stores it as a dead letter
            await self._sender.send_again(message, times, 0, retries_max=0)
        else:
            level = level or retry_level(message.tries)
            await self._sender.send_again(message, times, level, self._sender.retries_max)


class RetryOrdered:
    """Policy of ordered queues: retry in place; send the message away after its last try."""

    def __init__(self, config: ConsumerConfig, sender: RetrySender | None) -> None:
        self._config = config
        self._sender = sender
        """None when broadcasting: the message is dropped after its last try."""
        self._throttle = ErrorLogThrottle("giving up ordered messages")

    async def __call__(self, message: InboundMessage, delay_ms: int | None) -> int | None:
        """See `FailurePolicy`."""
        retries_max = self._config.retries_max
        is_last = delay_ms == DEAD_LETTER or (
            retries_max is not None and message.tries >= retries_max
        )
        if is_last and await self._was_sent_away(message, is_dead=delay_ms == DEAD_LETTER):
            return None
        if delay_ms is None or delay_ms == DEAD_LETTER:
            return self._config.ordered_pause_ms
        return delay_ms

    async def _was_sent_away(self, message: InboundMessage, *, is_dead: bool) -> bool:
        if self._sender is None:
            log.error("%r is dropped after %d tries%s", message, message.tries + 1, _why(message))
            return True
        try:
            if is_dead:
                await self._sender.send_back(message, DEAD_LETTER)
            else:  # as in Java: the broker sees by the group's locks that its tries are over
                times, level = message.tries, retry_level(message.tries)
                await self._sender.send_again(message, times, level, self._config.retries_max)
        except RoquetError as error:
            self._throttle.report(error)
            return False
        self._throttle.clear()
        self._sender.note_dead_letter(message)
        return True


class RetryLocally:
    """Policy without a clustering group: retry locally after a growing pause."""

    def __init__(self, sender: RetrySender) -> None:
        self._sender = sender

    async def __call__(self, message: InboundMessage, delay_ms: int | None) -> int | None:
        """See `FailurePolicy`."""
        if delay_ms == DEAD_LETTER and message.is_undecoded:
            log.error("%r is skipped, as it cannot be decoded: %s", message, message.undecodable)
            return None  # a PullConsumer moves only what its user gives up
        if delay_ms == DEAD_LETTER:
            try:
                await self._sender.send_back(message, DEAD_LETTER)
            except RoquetError as error:
                log.warning("%r could not be sent to the dead letters yet: %s", message, error)
                return LOCAL_RETRY_MS
            self._sender.note_dead_letter(message)
            return None
        return retry_pause_ms(message.tries) if delay_ms is None else delay_ms


async def drop_failed(message: InboundMessage, _delay_ms: int | None) -> None:
    """Policy of a broadcasting group: log the failure and drop the message, as in Java."""
    log.error(
        "%r failed and is dropped: a broadcast message is not sent back%s", message,
        _why(message),
    )  # fmt: skip
