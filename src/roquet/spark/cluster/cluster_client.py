"""Cluster client: routes, offsets and calls of a read, retried while brokers are away.

A call to a broker that does not answer, because it restarts for example, is retried until the
read's timeout; each attempt looks its address up again. So does one after a refusal that may pass:
the broker may not be the master any more. Connections stay open for the life of the process:
Spark's workers serve many batches.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar

import msgspec

from roquet.lake.queue_offsets import QueueKey, QueueOffsets, TopicIds
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
from roquet.model.flags import Permission
from roquet.model.route import BrokerData, TopicRoute
from roquet.model.settings import suggest
from roquet.model.topic import MASTER_ID
from roquet.net.blocking import BlockingChannel
from roquet.net.clock import SYSTEM_CLOCK
from roquet.rules.backoff import backoff_ms
from roquet.rules.replication.read_from import ReadFrom
from roquet.rules.send_retry import NOT_DONE, is_transient
from roquet.spark.access_options import AccessOptions
from roquet.spark.cluster.time_search import first_since
from roquet.spark.options import SourceOptions, matching
from roquet.spark.wait_warning import WaitWarning
from roquet.wire.call import Call, Reply
from roquet.wire.calls.admin.group import GetConnections
from roquet.wire.calls.admin.namesrv import BrokerMembersBody, GetBrokerMembers, SystemTopics
from roquet.wire.calls.admin.stats import GetTopicStats, TopicStats
from roquet.wire.calls.bodies import ConsumerConnection, TopicList
from roquet.wire.calls.offset import MaxOffset, MinOffset, QueryOffset
from roquet.wire.calls.route import GetAllTopics, GetRoute
from roquet.wire.codes import ResponseCode
from roquet.wire.fastjson.codec import loads

log = logger(__name__)

R = TypeVar("R", bound=Reply)
T = TypeVar("T")

Pause = Callable[[int], object]
"""Waits for so many milliseconds."""

CALL_TIMEOUT_MS: Final = 10_000
"""Timeout of one call: four mebibytes from a cold disk take longer than the usual three seconds."""

NAMESRV_TIMEOUT_MS: Final = 3_000
"""Timeout of one call to a name server, which answers from memory."""

RETRY_PAUSE_MS: Final = 50
"""First pause between attempts; each further one is twice as long."""

RETRY_PAUSE_MS_MAX: Final = 1_000
"""Longest pause between attempts: a broker that comes back is found within it."""

LOSS_ADVICE: Final = "failOnDataLoss=false continues without the lost messages"
"""The advice in errors about lost messages."""

SHARED_CHANNELS: Final[dict[AccessOptions, dict[str, BlockingChannel]]] = {}
"""The connections of this process, by whose they are and by address."""


class DataLost(RoquetError):
    """Messages of a read's range were deleted or are damaged."""


class OffsetBounds(msgspec.Struct, frozen=True):
    """First and next offsets of the queues of a read."""

    earliest: QueueOffsets
    """The offset of each queue's first message."""
    latest: QueueOffsets
    """The offset that the next message of each queue will get."""
    topic_ids: TopicIds = {}
    """Ids of the topics, where brokers report them."""


def twice(attempt: Callable[[], T]) -> T:
    """The attempt's result, of a second one after a network failure: connections may have ended."""
    try:
        return attempt()
    except CallRefused:
        raise
    except CallError:
        return attempt()


def sleep_ms(pause_ms: int) -> None:
    """Block the thread for so many milliseconds."""
    time.sleep(pause_ms / 1000)


class ClusterClient:
    """Calls to the name servers and brokers of a read's topics."""

    def __init__(
        self,
        settings: SourceOptions,
        addresses: Mapping[str, str] | None = None,
        pause: Pause = sleep_ms,
        channels: dict[str, BlockingChannel] | None = None,
        *,
        leaders_only: bool = False,
        replicas: Mapping[str, Mapping[int, str]] | None = None,
    ) -> None:
        """`channels` are connections for a further thread: those of the process serve one thread.

        A follower may lack messages and offsets that its leader has reported: with `leaders_only`,
        or with planned `addresses`, calls wait for the leader.
        """
        self._own = channels
        self._is_planned = addresses is not None  # empty when no broker had a leader then
        self._leaders_only = leaders_only or self._is_planned
        self.settings = settings
        self._addresses = dict(addresses or {})
        self._replicas = dict(replicas or {})
        self._doubted: set[str] = set()
        """Brokers that gave a refusal that may pass: another may be the master by now."""
        self._seen: set[str] = set()
        """Topics whose route was found at least once."""
        self.pause = pause
        self.lost_count = 0
        """Lost messages that `report_loss` was told of."""
        self._without_stats: set[str] = set()
        """Brokers that refuse GetTopicStats."""
        self._maybe_led: set[str] = set()
        """Brokers that a warning named, since nobody says whether they have a leader."""
        self.topic_ids: TopicIds = {}
        """Ids of the topics, from the latest replies about offsets."""

    @property
    def _channels(self) -> dict[str, BlockingChannel]:
        if self._own is not None:
            return self._own
        return SHARED_CHANNELS.setdefault(self.settings.access, {})

    @property
    def addresses(self) -> Mapping[str, str]:
        """Known addresses by broker name."""
        return self._addresses

    @property
    def replicas(self) -> Mapping[str, Mapping[int, str]]:
        """Known replicas by broker name: addresses by id. Empty unless the read may use them."""
        return self._replicas if self.settings.read_from is ReadFrom.REPLICA else {}

    def topics(self) -> tuple[str, ...]:
        """The named topics of the read, or those that its pattern matches now."""
        pattern = self.settings.topic_pattern
        if pattern is None:
            return self.settings.topics
        known, hidden = self._listed(GetAllTopics()), list[str]()
        with suppress(CallRefused):  # those that are named after brokers and clusters
            hidden = self._listed(SystemTopics())
        return matching(pattern, known, hidden)

    def route(self, topic: str) -> TopicRoute:
        """A topic's route, from the first name server that answers.

        Raises UsageError for an unknown topic. A topic that was found before raises ConnectFailed.
        With `leaders_only` a broker without a leader loses its address: a former leader may lack
        what another has by now.
        """
        try:
            reply = self._ask_servers(GetRoute(topic=topic, accept_standard_json_only=True))
        except CallRefused as error:
            # A name server that has just started knows no topics for a moment.
            was_there = self._is_planned or topic in self._seen
            if was_there or error.code != ResponseCode.TOPIC_NOT_EXIST:
                raise ConnectFailed(f"no name server answers: {error}") from error
            servers = ", ".join(self.settings.namesrv)
            known: list[str] = []
            with suppress(RoquetError):
                known = self._listed(GetAllTopics())
            hint = suggest(topic, known)
            raise UsageError(f"topic {topic!r} is unknown to {servers}{hint}") from error
        self._seen.add(topic)
        route = loads(bytes(reply.body), TopicRoute)
        for data in route.broker_datas:
            address = self._leader(data, route) if self._leaders_only else data.any_address
            if address:
                self._addresses[data.broker_name] = address
            elif self._leaders_only and not self._is_planned:
                self._addresses.pop(data.broker_name, None)
            self._replicas[data.broker_name] = {
                broker_id: replica
                for broker_id, replica in data.broker_addrs.items()
                if broker_id != MASTER_ID
            }
        return route

    def _leader(self, data: BrokerData, route: TopicRoute) -> str | None:
        """Address of a broker's leader; None without one, or while a follower stands in for it.

        A follower that stands in has the leader's id in a route. Its queues cannot be written, but
        neither can those of a read-only topic: name servers tell these apart by the true ids.
        """
        can_be_written = any(
            queues.perm & Permission.WRITE
            for queues in route.queue_datas
            if queues.broker_name == data.broker_name
        )
        if not data.enable_acting_master or can_be_written:
            return data.leader
        call = GetBrokerMembers(cluster_name=data.cluster, broker_name=data.broker_name)
        try:
            body = self._ask_servers(call).body
        except CallRefused as error:
            self._warn_of_refusal(data.broker_name, error)
            return None
        group = loads(bytes(body), BrokerMembersBody).broker_member_group
        return group.broker_addrs.get(MASTER_ID) if group else None

    def _warn_of_refusal(self, broker: str, error: CallRefused) -> None:
        """Warn once of each broker: routes are looked up often."""
        if broker not in self._maybe_led:
            self._maybe_led.add(broker)
            log.warning(
                "nobody may write to %s, so a copy may stand in for it, which name servers do not "
                "tell: allow the user of the read to Get its cluster (%s)",
                broker,
                error,
            )

    def ask(self, broker: str, call: Call[R]) -> R:
        """A broker's reply; retried until the read's timeout."""
        return self.with_retries(lambda: self.ask_once(broker, call), broker)

    def ask_ahead(self, broker: str, call: Call[Any]) -> None:
        """Send a call ahead of the `ask` that follows; a failure shows there."""
        if address := self._addresses.get(broker):
            self.ask_ahead_at(address, call)

    def ask_ahead_at(self, address: str, call: Call[Any]) -> None:
        """Send a call ahead of the `ask_at` that follows; a failure shows there."""
        if (channel := self._channels.get(address)) is not None:
            channel.ask_ahead(call)

    def earliest(self) -> QueueOffsets:
        """The offset of the first message of each queue."""
        return self.bounds().earliest

    def latest(self) -> QueueOffsets:
        """The offset that the next message of each queue will get."""
        return self.bounds().latest

    def bounds(self, former: Iterable[QueueKey] = ()) -> OffsetBounds:
        """First and next offsets of all queues of the read's topics.

        And of `former` ones, which a topic may have had on a broker that still has some of it.
        """
        earliest, latest = QueueOffsets(), QueueOffsets()
        for topic in self.with_retries(self.topics, "name server"):
            by_broker: dict[str, list[int]] = {}
            route = self.with_retries(partial(self.route, topic), "name server")
            for queue in route.read_queues(topic):
                by_broker.setdefault(queue.broker_name, []).append(queue.queue_id)
            for name, broker, queue_id in former:
                if name == topic and queue_id not in by_broker.get(broker, [queue_id]):
                    by_broker[broker].append(queue_id)
            for broker, ids in by_broker.items():
                bounds = self.with_retries(partial(self.queue_bounds, topic, broker, ids), broker)
                for queue_id, (first, last) in bounds.items():
                    earliest[topic, broker, queue_id] = first
                    latest[topic, broker, queue_id] = last
        return OffsetBounds(earliest, latest, dict(self.topic_ids))

    def queue_bounds(
        self, topic: str, broker: str, ids: Sequence[int]
    ) -> Mapping[int, tuple[int, int]]:
        """First and next offset by queue id, of a topic's queues on a broker, without retries."""
        # One call for all queues, unless the broker refuses it. Its reply leaves out queues that
        # are closed for writing.
        bounds = {} if broker in self._without_stats else self._bounds_by_stats(topic, broker)
        for queue_id in ids:
            if queue_id not in bounds:
                replies = [
                    self.ask_once(broker, kind(topic=topic, queue_id=queue_id))
                    for kind in (MinOffset, MaxOffset)
                ]
                first, last = (reply.offset for reply in replies)
                self._note_id(topic, broker, replies[0].topic_id)
                bounds[queue_id] = max(first, 0), max(last, 0)  # -1 for an unused queue
        return {queue_id: bounds[queue_id] for queue_id in ids}

    def group_members(self, broker: str, group: str) -> Sequence[str]:
        """The client ids of a group's members on a broker, sorted.

        Brokers differ in how they refuse the call for a group without members.
        """
        reply = self.ask(broker, GetConnections(consumer_group=group))
        members = loads(bytes(reply.body), ConsumerConnection).connection_set
        return sorted(member.client_id for member in members)

    def committed(self, queue: QueueKey, group: str) -> int | None:
        """A group's committed offset in a queue; None without one."""
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
        """The offset, within the span, of a queue's first message stored at `ms` or later."""
        return first_since(self.ask, self.settings.group, queue, span, ms)

    def now_ms(self) -> int:
        """Milliseconds since 1970."""
        return SYSTEM_CLOCK.now_ms()

    def report_loss(self, what: str, count: int = 0, advice: str = LOSS_ADVICE) -> None:
        """Raise DataLost, or log a warning with failOnDataLoss=false, for `count` lost messages."""
        if self.settings.fail_on_data_loss:
            raise DataLost(f"{what}; {advice}")
        self.lost_count += count
        log.warning("%s; continuing, since failOnDataLoss=false", what)

    def with_retries(self, attempt: Callable[[], T], who: str) -> T:
        """The attempt's result; transient failures are retried until the read's timeout.

        SYSTEM_ERROR is final here: brokers also refuse with it what they will never serve.
        """
        pauses_ms = backoff_ms(RETRY_PAUSE_MS, RETRY_PAUSE_MS_MAX)
        now_ms, timeout_ms = SYSTEM_CLOCK.monotonic_ms(), self.settings.timeout_ms
        deadline, wait = now_ms + timeout_ms, WaitWarning(now_ms, timeout_ms)
        while True:
            try:
                result = attempt()
            except CallError as error:
                now_ms = SYSTEM_CLOCK.monotonic_ms()
                if not is_transient(error, NOT_DONE) or now_ms >= deadline:
                    raise
                wait.failed(now_ms, who, error)
            else:
                wait.ended(SYSTEM_CLOCK.monotonic_ms(), who)
                return result
            self.pause(next(pauses_ms))

    def _bounds_by_stats(self, topic: str, broker: str) -> dict[int, tuple[int, int]]:
        try:
            reply = self.ask_once(broker, GetTopicStats(topic=topic))
        except CallRefused as error:
            if is_transient(error, NOT_DONE):
                raise
            if error.code != ResponseCode.TOPIC_NOT_EXIST:
                log.info(
                    "%s refuses GetTopicStats, its queues are asked for singly: %s", broker, error
                )
                self._without_stats.add(broker)
            return {}
        stats = loads(bytes(reply.body), TopicStats)
        self._note_id(topic, broker, stats.topic_id)
        table = stats.offset_table
        return {queue.queue_id: (at.min_offset, at.max_offset) for queue, at in table.items()}

    def _note_id(self, topic: str, broker: str, topic_id: str | None) -> None:
        if topic_id is None:
            self.topic_ids.pop((topic, broker), None)
        else:
            self.topic_ids[topic, broker] = topic_id

    def _listed(self, call: GetAllTopics | SystemTopics) -> list[str]:
        return list(loads(bytes(self._ask_servers(call).body), TopicList).topic_list)

    def _ask_servers(self, call: Call[R]) -> R:
        """The reply of the first name server that does not fail."""
        failure: CallError | None = None
        for address in self.settings.namesrv:
            try:
                return self.ask_at(address, call, NAMESRV_TIMEOUT_MS)
            except CallError as error:
                failure = error
        if isinstance(failure, CallRefused):
            raise failure
        servers = ", ".join(self.settings.namesrv)
        raise ConnectFailed(f"no name server of {servers} answers: {failure}")

    def ask_once(self, broker: str, call: Call[R]) -> R:
        """A broker's reply, without retries."""
        if broker not in self._addresses:
            self.look_up()
        elif broker in self._doubted:
            with suppress(RoquetError):  # without an answer the known address stays
                self.look_up()
        self._doubted.discard(broker)
        address = self._addresses.get(broker)
        if address is None:
            topics = ", ".join(self.topics())
            note = ", or has no master there" if self._leaders_only else ""
            raise ConnectFailed(f"broker {broker!r} is not in the route of {topics}{note}")
        try:
            return self.ask_at(address, call)
        except CallRefused as error:
            if is_transient(error, NOT_DONE):
                self._doubted.add(broker)
            raise
        except CallError:
            del self._addresses[broker]  # it may return under another address
            raise

    def look_up(self) -> None:
        """Look up the addresses of the brokers of all topics."""
        for topic in self.topics():
            self.route(topic)

    def ask_at(self, address: str, call: Call[R], timeout_ms: int = CALL_TIMEOUT_MS) -> R:
        """The reply of the server at an address, without retries."""
        channels = self._channels
        channel = channels.get(address)
        if channel is None:
            security = self.settings.access.security()
            channel = channels[address] = BlockingChannel(address, security=security)
        try:
            return channel.call(call, timeout_ms)
        except CallRefused as error:
            if error.code == ResponseCode.NO_PERMISSION:
                error.add_note(
                    f"{address}: the request was {self.settings.access.security().signed}"
                )
            raise
        except (CallError, RemoteProtocolError) as error:
            del channels[address]
            channel.close()
            if isinstance(error, RemoteProtocolError):
                raise ConnectionLost(str(error)) from error
            raise
