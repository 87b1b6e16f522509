"""Cluster: what name servers and brokers say of topics, asked patiently.

A broker that is away, because it starts again for example, is asked until the time is up; its
address is looked up anew each time. Connections are kept for the life of the process: Spark's
workers serve many batches.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

import msgspec

from roquet.log_records import logger
from roquet.model.errors import (
    CallError,
    CallRefused,
    ConnectFailed,
    ConnectionLost,
    RemoteProtocolError,
    RoquetError,
    UsageError,
)
from roquet.model.queue import MessageQueue
from roquet.model.route import TopicRoute
from roquet.model.settings import suggest
from roquet.net.blocking import BlockingChannel
from roquet.net.clock import SYSTEM_CLOCK
from roquet.spark.options import SourceOptions
from roquet.spark.queue_offsets import QueueKey, QueueOffsets, TopicIds
from roquet.spark.topic_pattern import matching
from roquet.wire.call import Call, Reply
from roquet.wire.calls.admin.namesrv import SystemTopics
from roquet.wire.calls.admin.stats import GetTopicStats, TopicStats
from roquet.wire.calls.bodies import TopicList
from roquet.wire.calls.offset import MaxOffset, MinOffset, QueryOffset
from roquet.wire.calls.route import GetAllTopics, GetRoute
from roquet.wire.codes import ResponseCode
from roquet.wire.fastjson.codec import loads

log = logger(__name__)

R = TypeVar("R", bound=Reply)
T = TypeVar("T")

CALL_TIMEOUT_MS: Final = 10_000
"""For one answer: four mebibytes from a cold disk take longer than the usual three seconds."""

RETRY_PAUSES_MS: Final = (50, 100, 200, 500, 1000)
"""Between one attempt and the next; the last one again and again."""

LOSS_ADVICE: Final = "failOnDataLoss=false goes on without what is gone"
"""What an error about lost messages advises."""

_BUSY_CODES: Final = frozenset({ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE})

_channels: dict[str, BlockingChannel] = {}


class DataLost(RoquetError):
    """Messages that a read was to bring are not there any more."""


class OffsetBounds(msgspec.Struct, frozen=True):
    """What the queues of a read hold."""

    earliest: QueueOffsets
    """The offset of each queue's first message."""
    latest: QueueOffsets
    """The offset that each queue's next message will get."""
    topic_ids: TopicIds = {}
    """Which topics of their names they are, as far as brokers tell."""


class ClusterClient:
    """The cluster that the topics of a read live in."""

    def __init__(
        self,
        settings: SourceOptions,
        addresses: Mapping[str, str] | None = None,
        pause: Callable[[int], object] = lambda ms: time.sleep(ms / 1000),
        channels: dict[str, BlockingChannel] | None = None,
        *,
        leaders_only: bool = False,
    ) -> None:
        """`channels` are for a thread of its own: those of the process are for one.

        A leader's copy may lack what the leader has given or promised: `leaders_only` waits for it.
        """
        self._own = channels
        self._leaders_only = leaders_only or bool(addresses)
        self.settings = settings
        self._addresses = dict(addresses or {})
        self._is_planned = bool(addresses)
        self._seen: set[str] = set()
        """Topics whose route was found."""
        self.pause = pause
        self.lost_count = 0
        """Messages that were found to be gone, by this object."""
        self._silent: set[str] = set()
        """Brokers that do not tell of all queues of a topic at once."""
        self.topic_ids: TopicIds = {}
        """As brokers told them with offsets, the last time."""

    @property
    def _channels(self) -> dict[str, BlockingChannel]:
        return _channels if self._own is None else self._own

    @property
    def addresses(self) -> Mapping[str, str]:
        """The brokers' addresses by name, as far as they are known."""
        return self._addresses

    def topics(self) -> tuple[str, ...]:
        """The topics of the read: those named, or those that the pattern matches now."""
        pattern = self.settings.topic_pattern
        if pattern is None:
            return self.settings.topics
        return matching(pattern, self._known_topics(), self._hidden_topics())

    def route(self, topic: str) -> TopicRoute:
        """Where a topic lives, from the first name server that knows."""
        try:
            reply = self._ask_servers(GetRoute(topic=topic, accept_standard_json_only=True))
        except CallRefused as error:
            # One that has just started forgets topics for a moment: a topic that was there is.
            was_there = self._is_planned or topic in self._seen
            if was_there or error.code != ResponseCode.TOPIC_NOT_EXIST:
                raise ConnectFailed(f"no name server helps: {error}") from error
            servers = ", ".join(self.settings.namesrv)
            hint = suggest(topic, self._topics_for_hint())
            raise UsageError(f"topic {topic!r} is unknown to {servers}{hint}") from error
        self._seen.add(topic)
        return self._noted(loads(bytes(reply.body), TopicRoute))

    def ask(self, broker: str, call: Call[R]) -> R:
        """A broker's answer, waited for until the time is up."""
        return self.with_retries(lambda: self.ask_once(broker, call), broker)

    def ask_ahead(self, broker: str, call: Call[Any]) -> None:
        """Have a broker begin with what it will be asked next; what fails now is asked then."""
        address = self._addresses.get(broker)
        channel = self._channels.get(address) if address else None
        if channel is not None:
            channel.ask_ahead(call)

    def earliest(self) -> QueueOffsets:
        """The offset of each queue's first message."""
        return self.bounds().earliest

    def latest(self) -> QueueOffsets:
        """The offset that each queue's next message will get."""
        return self.bounds().latest

    def bounds(self) -> OffsetBounds:
        """What all queues hold."""
        found = OffsetBounds({}, {})
        for topic in self.with_retries(self.topics, "name server"):
            by_broker: dict[str, list[int]] = {}
            for queue in self._queues(topic):
                by_broker.setdefault(queue.broker_name, []).append(queue.queue_id)
            for broker, ids in by_broker.items():
                told = self.with_retries(partial(self.queue_bounds, topic, broker, ids), broker)
                for queue_id, (first, last) in told.items():
                    found.earliest[topic, broker, queue_id] = first
                    found.latest[topic, broker, queue_id] = last
        return msgspec.structs.replace(found, topic_ids=dict(self.topic_ids))

    def queue_bounds(
        self, topic: str, broker: str, ids: Sequence[int]
    ) -> Mapping[int, tuple[int, int]]:
        """First and next offset of a topic's queues on a broker, asked once, without patience."""
        # One question for all, where it can be. Its answer leaves out queues that are closed for
        # writing, and a broker may refuse it.
        found = {} if broker in self._silent else self._told_at_once(topic, broker)
        for queue_id in ids:
            if queue_id not in found:
                replies = [
                    self.ask_once(broker, kind(topic=topic, queue_id=queue_id))
                    for kind in (MinOffset, MaxOffset)
                ]
                first, last = (reply.offset for reply in replies)
                self._note_id(topic, broker, replies[0].topic_id)
                found[queue_id] = max(first, 0), max(last, 0)  # -1 is of a queue never used
        return {queue_id: found[queue_id] for queue_id in ids}

    def committed(self, queue: QueueKey, group: str) -> int | None:
        """A group's progress in a queue; None when it has none."""
        topic, broker, queue_id = queue
        call = QueryOffset(
            consumer_group=group, topic=topic, queue_id=queue_id, set_zero_if_not_found=False
        )
        try:
            return self.ask(broker, call).offset
        except CallRefused as error:
            if error.code == ResponseCode.QUERY_NOT_FOUND:
                return None
            raise

    def first_since(self, queue: QueueKey, span: tuple[int, int], ms: int) -> int:
        """The offset of the first message of a queue stored at a time or later."""
        from roquet.spark.cluster.time_search import (
            first_since,  # a reader of messages, which few reads need
        )

        return first_since(self.ask, self.settings.group, queue, span, ms)

    def now_ms(self) -> int:
        """The time."""
        return SYSTEM_CLOCK.now_ms()

    def report_loss(self, what: str, count: int = 0, advice: str = LOSS_ADVICE) -> None:
        """Messages are gone: an error, or a warning where the user has said so."""
        if self.settings.fail_on_data_loss:
            raise DataLost(f"{what}; {advice}")
        self.lost_count += count
        log.warning("%s; going on, as failOnDataLoss=false says", what)

    def with_retries(self, attempt: Callable[[], T], who: str) -> T:
        """What the attempt gives, made again after failures that may pass, until time is up."""
        pauses = iter(RETRY_PAUSES_MS)
        pause = RETRY_PAUSES_MS[0]
        deadline = SYSTEM_CLOCK.monotonic_ms() + self.settings.timeout_ms
        while True:
            try:
                return attempt()
            except CallError as error:
                if not _is_transient(error) or SYSTEM_CLOCK.monotonic_ms() >= deadline:
                    raise
                log.info("%s: %s; trying again", who, error)
            pause = next(pauses, pause)
            self.pause(pause)

    def _told_at_once(self, topic: str, broker: str) -> dict[int, tuple[int, int]]:
        try:
            reply = self.ask_once(broker, GetTopicStats(topic=topic))
        except CallRefused as error:
            if error.code in _BUSY_CODES:
                raise
            if error.code != ResponseCode.TOPIC_NOT_EXIST:
                log.info("%s does not tell of all queues at once: %s", broker, error)
                self._silent.add(broker)
            return {}
        found = loads(bytes(reply.body), TopicStats)
        self._note_id(topic, broker, found.topic_id)
        table = found.offset_table
        return {queue.queue_id: (at.min_offset, at.max_offset) for queue, at in table.items()}

    def _note_id(self, topic: str, broker: str, topic_id: str | None) -> None:
        if topic_id is None:
            self.topic_ids.pop((topic, broker), None)
        else:
            self.topic_ids[topic, broker] = topic_id

    def _queues(self, topic: str) -> Sequence[MessageQueue]:
        """The queues of a topic that may be read."""
        return self.with_retries(lambda: self.route(topic), "name server").read_queues(topic)

    def _hidden_topics(self) -> Sequence[str]:
        """Topics named after brokers and clusters."""
        try:
            return loads(bytes(self._ask_servers(SystemTopics()).body), TopicList).topic_list
        except CallRefused:
            return []

    def _known_topics(self) -> Sequence[str]:
        """All topics."""
        return loads(bytes(self._ask_servers(GetAllTopics()).body), TopicList).topic_list

    def _topics_for_hint(self) -> Sequence[str]:
        try:
            return self._known_topics()
        except RoquetError:
            return []

    def _ask_servers(self, call: Call[R]) -> R:
        """The answer of the first name server that helps."""
        failure: CallError | None = None
        for address in self.settings.namesrv:
            try:
                return _call(self._channels, address, call)
            except CallError as error:
                failure = error
        if isinstance(failure, CallRefused):
            raise failure
        raise ConnectFailed(f"no name server of {self.settings.namesrv} helps: {failure}")

    def ask_once(self, broker: str, call: Call[R]) -> R:
        """A broker's answer, asked for once: the caller knows what a failure means."""
        if broker not in self._addresses:
            for topic in self.topics():
                self.route(topic)
        address = self._addresses.get(broker)
        if address is None:
            topics = ", ".join(self.topics())
            raise ConnectFailed(f"broker {broker!r} is not in the route of {topics}")
        try:
            return _call(self._channels, address, call)
        except CallRefused:
            raise
        except CallError:
            del self._addresses[broker]  # it may come back elsewhere
            raise

    def _noted(self, route: TopicRoute) -> TopicRoute:
        for broker in route.broker_datas:
            address = broker.leader if self._leaders_only else broker.any_address
            if address:
                self._addresses[broker.broker_name] = address
        return route


def _is_transient(error: CallError) -> bool:
    return not isinstance(error, CallRefused) or error.code in _BUSY_CODES


def _call(channels: dict[str, BlockingChannel], address: str, call: Call[R]) -> R:
    channel = channels.get(address)
    if channel is None:
        channel = channels[address] = BlockingChannel(address)
    try:
        return channel.call(call, CALL_TIMEOUT_MS)
    except CallRefused:
        raise
    except (CallError, RemoteProtocolError) as error:
        del channels[address]
        channel.close()
        if isinstance(error, RemoteProtocolError):
            raise ConnectionLost(str(error)) from error
        raise
