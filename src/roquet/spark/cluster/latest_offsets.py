"""Watch: how far a stream's queues reach and which brokers are away, with one call a broker.

A broker that does not answer is asked again later and holds up nobody meanwhile. The longer an
attempt took the later the next one is: a host that swallows packets costs a tenth of the time.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from roquet.log_records import logger
from roquet.model.errors import CallError, CallRefused, UsageError
from roquet.net.clock import SYSTEM_CLOCK
from roquet.spark.cluster.cluster_client import RETRY_PAUSES_MS, ClusterClient
from roquet.spark.cluster.probe import probe_call
from roquet.spark.options import SourceOptions
from roquet.spark.queue_offsets import QueueKey, QueueOffsets, TopicIds

log = logger(__name__)

TopicBroker = tuple[str, str]
"""A topic, and a broker that has some of its queues."""

CHECK_INTERVAL_MS_MIN: Final = 1_000
"""Between two questions for the routes, and between two attempts at a broker that is away."""

BACKOFF_FACTOR: Final = 10
"""An attempt that took a second is made again after ten."""

SAMPLE_MESSAGES: Final = 32
SAMPLE_BYTES: Final = 64 * 1024
"""What tells the size of messages; genuine brokers give no more messages at once."""


class ObservedOffsets(msgspec.Struct, frozen=True, kw_only=True):
    """What brokers said; queues of those that are away are missing."""

    earliest: QueueOffsets
    latest: QueueOffsets
    away_ms: Mapping[str, int]
    """For how long they have been away."""
    unfound: Mapping[str, Exception] = {}
    """Topics of which no route is known, and why."""
    topic_ids: TopicIds = {}
    """Which topics of their names they are, as far as brokers tell."""


class _Absence(msgspec.Struct):
    """A broker that is away."""

    since_ms: int
    due_ms: int
    """When it is asked again."""
    is_long: bool = False


class OffsetWatcher:
    """Looks at the brokers of a stream, again and again, and remembers where they were."""

    def __init__(self, settings: SourceOptions) -> None:
        self._settings = settings
        # One that does not wait: whoever looks often need not be patient.
        hasty = msgspec.structs.replace(settings, timeout_ms=0)
        self._cluster = ClusterClient(hasty, leaders_only=True)
        self._queues: dict[TopicBroker, set[int]] = {}
        self._topics: Sequence[str] = settings.topics
        self._routes_due_ms = 0
        self._away: dict[str, _Absence] = {}
        self._unfound: dict[str, Exception] = {}

    @property
    def addresses(self) -> Mapping[str, str]:
        """The brokers' addresses, as far as they are known."""
        return self._cluster.addresses

    def look(self, before: QueueOffsets) -> ObservedOffsets:
        """How far the queues reach: those in the routes, and those that were read before."""
        self._find()
        earliest, latest = dict[QueueKey, int](), dict[QueueKey, int]()
        wanted = self._wanted(before)
        for (topic, broker), queue_ids in sorted(wanted.items()):
            for queue_id, (first, last) in self._told(topic, broker, queue_ids).items():
                earliest[topic, broker, queue_id] = first
                latest[topic, broker, queue_id] = last
        now_ms = SYSTEM_CLOCK.monotonic_ms()
        brokers = {broker for _, broker in wanted} & self._away.keys()
        away_ms = {broker: now_ms - self._away[broker].since_ms for broker in sorted(brokers)}
        unfound = dict(self._unfound)
        ids = dict(self._cluster.topic_ids)
        return ObservedOffsets(
            earliest=earliest, latest=latest, away_ms=away_ms, unfound=unfound, topic_ids=ids
        )

    def whole(self, before: QueueOffsets) -> ObservedOffsets:
        """A look for which all brokers are waited for; when the time is up, without the others."""
        pauses = iter(RETRY_PAUSES_MS)
        deadline = SYSTEM_CLOCK.monotonic_ms() + self._settings.timeout_ms
        while True:
            self._routes_due_ms = 0
            for absence in self._away.values():
                absence.due_ms = 0
            look = self.look(before)
            is_whole = not look.away_ms and not look.unfound
            if is_whole or SYSTEM_CLOCK.monotonic_ms() >= deadline:
                return look
            self._cluster.pause(next(pauses, RETRY_PAUSES_MS[-1]))

    def size(self, queue: QueueKey, at: int) -> float | None:
        """The mean size of messages from an offset on, in bytes; None when nobody tells."""
        _, broker, _ = queue
        call = probe_call(self._settings.group, queue, at, SAMPLE_MESSAGES, SAMPLE_BYTES)
        try:
            reply = self._cluster.ask(broker, call)
        except (CallError, UsageError):
            return None
        count = reply.next_begin_offset - at
        return len(reply.body) / count if reply.body and count > 0 else None

    # -- routes ------------------------------------------------------------------------------

    def _find(self) -> None:
        """Ask for the routes when it is time; without an answer the old ones hold."""
        began_ms = SYSTEM_CLOCK.monotonic_ms()
        if began_ms < self._routes_due_ms:
            return
        for topic in self._topics_now():
            try:
                route = self._cluster.route(topic)
            except (CallError, UsageError) as error:
                self._not_found(topic, error)
                continue
            self._unfound.pop(topic, None)
            self._queues = {place: ids for place, ids in self._queues.items() if place[0] != topic}
            for queue in route.read_queues(topic):
                self._queues.setdefault((topic, queue.broker_name), set()).add(queue.queue_id)
        self._routes_due_ms = _next_check_ms(began_ms)

    def _topics_now(self) -> Sequence[str]:
        """The topics of the read; a pattern may match new ones by now."""
        try:
            self._topics = self._cluster.topics()
        except CallError as error:
            log.debug("topics: %s", error)
        known = set(self._topics)
        self._queues = {place: ids for place, ids in self._queues.items() if place[0] in known}
        return self._topics

    def _not_found(self, topic: str, error: Exception) -> None:
        """An old route holds; without one it is said once."""
        if all(place[0] != topic for place in self._queues):
            if topic not in self._unfound:
                log.warning("topic %r is not found, and waited for: %s", topic, error)
            self._unfound[topic] = error

    def _wanted(self, before: QueueOffsets) -> Mapping[TopicBroker, Iterable[int]]:
        """Where to look for which queues."""
        read: dict[TopicBroker, set[int]] = {}
        for topic, broker, queue_id in before:
            read.setdefault((topic, broker), set()).add(queue_id)
        return {**read, **self._queues}

    # -- brokers -----------------------------------------------------------------------------

    def _told(
        self, topic: str, broker: str, queue_ids: Iterable[int]
    ) -> Mapping[int, tuple[int, int]]:
        """First and next offset of these queues of a broker; nothing while it is away."""
        absence = self._away.get(broker)
        began_ms = SYSTEM_CLOCK.monotonic_ms()
        if absence is not None and began_ms < absence.due_ms:
            return {}
        try:
            found = self._ask(topic, broker, sorted(queue_ids), is_away=absence is not None)
        except (CallError, UsageError) as error:
            self._went(broker, began_ms, error)
            return {}
        if absence is not None:
            del self._away[broker]
            away_ms = SYSTEM_CLOCK.monotonic_ms() - absence.since_ms
            log.warning("broker %r is back after %.1f s", broker, away_ms / 1000)
        return found

    def _ask(
        self, topic: str, broker: str, queue_ids: Sequence[int], *, is_away: bool
    ) -> Mapping[int, tuple[int, int]]:
        try:
            return self._cluster.queue_bounds(topic, broker, queue_ids)
        except CallRefused:
            raise
        except CallError:
            if is_away:
                raise
            # The connection ended since the last look: a broker that started again is there.
            return self._cluster.queue_bounds(topic, broker, queue_ids)

    def _went(self, broker: str, began_ms: int, error: Exception) -> None:
        """Note that a broker is away, and say so: once at first, once when it takes long."""
        absence = self._away.get(broker)
        if absence is None:
            absence = self._away[broker] = _Absence(began_ms, 0)
            text = "broker %r is away, its queues wait where they are, the others go on: %s"
            log.warning(text, broker, error)
        absence.due_ms = _next_check_ms(began_ms)
        away_ms = SYSTEM_CLOCK.monotonic_ms() - absence.since_ms
        if away_ms >= self._settings.timeout_ms and not absence.is_long:
            absence.is_long = True
            log.error("broker %r has been away for %d s: %s", broker, away_ms // 1000, error)


def _next_check_ms(began_ms: int) -> int:
    """When to do again what began then and is done now."""
    now_ms = SYSTEM_CLOCK.monotonic_ms()
    return now_ms + max(CHECK_INTERVAL_MS_MIN, BACKOFF_FACTOR * (now_ms - began_ms))
