"""Latest offsets of a stream's queues, and the brokers that are away; one call per broker.

A broker that does not answer is asked again later and does not delay the others. The pause grows
with the time that the attempt took: a host that drops packets costs a tenth of the time.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Final

import msgspec

from roquet.lake.queue_offsets import QueueKey, QueueOffsets, TopicIds
from roquet.log_records import logger
from roquet.model.errors import CallError, UsageError
from roquet.net.clock import SYSTEM_CLOCK
from roquet.rules.backoff import backoff_ms
from roquet.spark.cluster.cluster_client import (
    RETRY_PAUSE_MS,
    RETRY_PAUSE_MS_MAX,
    ClusterClient,
    Pause,
    sleep_ms,
    twice,
)
from roquet.spark.cluster.time_search import probe_call
from roquet.spark.options import SourceOptions

log = logger(__name__)

TopicBroker = tuple[str, str]
"""A topic, and a broker that has some of its queues."""

CHECK_INTERVAL_MS_MIN: Final = 1_000
"""Shortest interval of route lookups, and of attempts at a broker that is away."""

BACKOFF_FACTOR: Final = 10
"""The pause after an attempt, in multiples of the time that it took."""

SAMPLE_MESSAGES: Final = 32
SAMPLE_BYTES: Final = 64 * 1024
"""The sample for message sizes; Apache brokers return no more messages at once."""


class ObservedOffsets(msgspec.Struct, frozen=True, kw_only=True):
    """Offsets at one moment; queues of brokers that are away are missing."""

    earliest: QueueOffsets
    latest: QueueOffsets
    away_ms: Mapping[str, int]
    """Brokers that do not answer, and for how long."""
    unfound: Mapping[str, Exception] = {}
    """Topics without a known route, and the reason."""
    topic_ids: TopicIds = {}
    """Ids of the topics, where brokers report them."""
    hidden: QueueOffsets = {}
    """Ends of queues that were removed from their topic with unread messages, which brokers do not
    give; they are not in `latest`."""


class _Absence(msgspec.Struct):
    since_ms: int
    due_ms: int
    """When to ask it again."""
    is_reported_long: bool = False


class OffsetWatcher:
    """Observes the offsets of a stream's queues, and remembers routes and absent brokers."""

    def __init__(self, settings: SourceOptions, pause: Pause = sleep_ms) -> None:
        self._settings = settings
        # Without retries: a stream observes often.
        self.cluster = ClusterClient(
            msgspec.structs.replace(settings, timeout_ms=0), pause=pause, leaders_only=True
        )
        self._queues: dict[TopicBroker, set[int]] = {}
        self._topics: Sequence[str] = settings.topics
        self._routes_due_ms = 0
        self._away: dict[str, _Absence] = {}
        self._unfound: dict[str, Exception] = {}

    def observe(self, before: QueueOffsets) -> ObservedOffsets:
        """Offsets of the queues in the routes and of those in `before`."""
        self._refresh_routes()
        earliest, latest = dict[QueueKey, int](), dict[QueueKey, int]()
        wanted = self._wanted(before)
        for (topic, broker), queue_ids in sorted(wanted.items()):
            for queue_id, (first, last) in self._bounds(topic, broker, queue_ids).items():
                earliest[topic, broker, queue_id] = first
                latest[topic, broker, queue_id] = last
        hidden = {
            queue: latest.pop(queue)
            for queue, offset in before.items()
            if self._is_removed(queue) and latest.get(queue, 0) > offset
        }
        now_ms = SYSTEM_CLOCK.monotonic_ms()
        brokers = {broker for _, broker in wanted} & self._away.keys()
        away_ms = {broker: now_ms - self._away[broker].since_ms for broker in sorted(brokers)}
        unfound = dict(self._unfound)
        ids = dict(self.cluster.topic_ids)
        return ObservedOffsets(
            earliest=earliest, latest=latest, away_ms=away_ms, unfound=unfound, topic_ids=ids,
            hidden=hidden,
        )  # fmt: skip

    def observe_all(self, before: QueueOffsets) -> ObservedOffsets:
        """Offsets of all queues; waits for absent brokers until the timeout, then omits them."""
        pauses_ms = backoff_ms(RETRY_PAUSE_MS, RETRY_PAUSE_MS_MAX)
        deadline = SYSTEM_CLOCK.monotonic_ms() + self._settings.timeout_ms
        while True:
            self._routes_due_ms = 0
            for absence in self._away.values():
                absence.due_ms = 0
            observed = self.observe(before)
            is_complete = not observed.away_ms and not observed.unfound
            if is_complete or SYSTEM_CLOCK.monotonic_ms() >= deadline:
                return observed
            self.cluster.pause(next(pauses_ms))

    def mean_size(self, queue: QueueKey, at: int) -> float | None:
        """The mean size in bytes of stored messages from an offset on; None without an answer."""
        _, broker, _ = queue
        call = probe_call(self._settings.group, queue, at, SAMPLE_MESSAGES, SAMPLE_BYTES)
        try:
            reply = self.cluster.ask(broker, call)
        except (CallError, UsageError):
            return None
        count = reply.next_begin_offset - at
        return len(reply.body) / count if reply.body and count > 0 else None

    # -- routes ------------------------------------------------------------------------------

    def _refresh_routes(self) -> None:
        """Look up the routes when due; without an answer the old ones stay."""
        began_ms = SYSTEM_CLOCK.monotonic_ms()
        if began_ms < self._routes_due_ms:
            return
        for topic in self._topics_now():
            try:
                route = self.cluster.route(topic)
            except (CallError, UsageError) as error:
                self._note_unfound(topic, error)
                continue
            self._unfound.pop(topic, None)
            self._queues = {place: ids for place, ids in self._queues.items() if place[0] != topic}
            for queue in route.read_queues(topic):
                self._queues.setdefault((topic, queue.broker_name), set()).add(queue.queue_id)
        self._routes_due_ms = _next_check_ms(began_ms)

    def _topics_now(self) -> Sequence[str]:
        """The topics of the read now: a pattern may match new ones."""
        try:
            self._topics = self.cluster.topics()
        except CallError as error:
            log.debug("topics: %s", error)
        known = set(self._topics)
        self._queues = {place: ids for place, ids in self._queues.items() if place[0] in known}
        return self._topics

    def _note_unfound(self, topic: str, error: Exception) -> None:
        """Note a topic without any route, and warn once; an old route stays in use."""
        if all(place[0] != topic for place in self._queues):
            if topic not in self._unfound:
                log.warning("topic %r is not found, and waited for: %s", topic, error)
            self._unfound[topic] = error

    def _wanted(self, before: QueueOffsets) -> Mapping[TopicBroker, Iterable[int]]:
        """Queue ids by topic and broker: those in the routes and those in `before`."""
        wanted = {place: set(ids) for place, ids in self._queues.items()}
        for topic, broker, queue_id in before:
            wanted.setdefault((topic, broker), set()).add(queue_id)
        return wanted

    def _is_removed(self, queue: QueueKey) -> bool:
        """Whether the route of its topic has other queues of the broker, and not this one."""
        ids = self._queues.get(queue[:2])
        return ids is not None and queue[2] not in ids

    # -- brokers -----------------------------------------------------------------------------

    def _bounds(
        self, topic: str, broker: str, queue_ids: Iterable[int]
    ) -> Mapping[int, tuple[int, int]]:
        """First and next offset by queue id; empty while the broker is away."""
        absence = self._away.get(broker)
        began_ms = SYSTEM_CLOCK.monotonic_ms()
        if absence is not None and began_ms < absence.due_ms:
            return {}
        try:
            ask = partial(self.cluster.queue_bounds, topic, broker, sorted(queue_ids))
            bounds = ask() if absence is not None else twice(ask)
        except (CallError, UsageError) as error:
            self._note_absence(broker, began_ms, error)
            return {}
        if absence is not None:
            del self._away[broker]
            away_ms = SYSTEM_CLOCK.monotonic_ms() - absence.since_ms
            log.warning("broker %r is back after %.1f s", broker, away_ms / 1000)
        return bounds

    def _note_absence(self, broker: str, began_ms: int, error: Exception) -> None:
        """Note that a broker is away; log it at first, and once more after the read's timeout."""
        absence = self._away.get(broker)
        if absence is None:
            absence = self._away[broker] = _Absence(began_ms, 0)
            text = "broker %r is away, its queues wait where they are, the others go on: %s"
            log.warning(text, broker, error)
        absence.due_ms = _next_check_ms(began_ms)
        away_ms = SYSTEM_CLOCK.monotonic_ms() - absence.since_ms
        if away_ms >= self._settings.timeout_ms and not absence.is_reported_long:
            absence.is_reported_long = True
            log.error("broker %r has been away for %d s: %s", broker, away_ms // 1000, error)


def _next_check_ms(began_ms: int) -> int:
    """When to repeat an attempt that began at `began_ms` and ends now."""
    now_ms = SYSTEM_CLOCK.monotonic_ms()
    return now_ms + max(CHECK_INTERVAL_MS_MIN, BACKOFF_FACTOR * (now_ms - began_ms))
