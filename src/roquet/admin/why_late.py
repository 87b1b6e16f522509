"""Why a message was handled when it was: what brokers and traces tell about it, put together.

Any broker answers these questions, Apache's too: copies of the message by its id in its own topic,
in topics of delays, transactions, retries and dead letters; traces of its producer and of members;
progress and members of its groups. How many messages were ahead of it is found by bisection: traces
of earlier messages of the queue say which one the group began when this one was stored.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from roquet.admin import messages
from roquet.admin.client import AdminClient, leader_addresses
from roquet.admin.group_answers import GroupAnswers, GroupTables, ask_group, ask_tables
from roquet.client.pull import PullConsumer
from roquet.model import names, properties
from roquet.model.errors import CallRefused, ConnectFailed, NotFound
from roquet.model.flags import TRANSACTION_MASK
from roquet.model.message import StoredMessage
from roquet.model.queue import MessageQueue
from roquet.rules.lateness import (
    LAST_TRY,
    Backlog,
    Event,
    Gap,
    Happening,
    clock_skew_ms,
    gaps,
    in_order,
    is_finished,
    span_text,
)
from roquet.wire.calls.admin.inspection import GetGroupsOfTopic, GroupList
from roquet.wire.calls.bodies import QueueProgress
from roquet.wire.fastjson import codec
from roquet.wire.trace_text import (
    ConsumeEndTrace,
    ConsumeReturnType,
    ConsumeStartTrace,
    SendTrace,
    Trace,
    decode,
)

WAITING: Final = (names.SCHEDULE_TOPIC, names.TIMER_TOPIC, names.HALF_TOPIC)
"""Topics of messages that are not delivered yet."""

HIDDEN: Final = (
    ", or delayed or not committed: brokers of ours show that with read_internal_topics = true"
)

DELAYING: Final = (properties.DELAY, properties.TIMER_OUT_MS, properties.REAL_TOPIC)
"""Any of these properties says that the broker delivered the message later."""

NOT_WRITTEN_DOWN: Final = (
    "when it reached the disk and the replicas: only the receipt of its producer said so"
)
NOT_TRACED: Final = (
    "when a member got and handled it: `trace=True` in ConsumerConfig (enableMsgTrace in Java) "
    "writes that down"
)
NO_RECORD: Final = (
    "rebalances, and locks of queues: brokers keep no record; the members' logs have them"
)


class GroupAccount(msgspec.Struct, frozen=True, kw_only=True):
    """One group and the message: events in order, gaps with the longest first."""

    group: str | None
    """None when no group reads the topic."""
    events: Sequence[Event]
    gaps: Sequence[Gap]
    is_finished: bool
    not_known: Sequence[str]
    """Facts that could not be found out, with the setting that would have shown it."""


async def explain(
    admin: AdminClient, reader: PullConsumer, message_id: str, *, topic: str | None = None,
    group: str | None = None, trace_topic: str = names.TRACE_TOPIC,
) -> tuple[StoredMessage, list[GroupAccount]]:  # fmt: skip
    """A message, and for each group that reads it, or the one named, what happened to it.

    Raises NotFound for a message that is not there, UsageError for an id that needs a topic.
    """
    message = await _find(admin, message_id, topic)
    topic = message.topic
    if topic in WAITING:
        topic = message.properties.get(properties.REAL_TOPIC, topic)
    brokers = leader_addresses((await admin.known_route(topic)).broker_datas)
    tables = await ask_tables(admin, brokers)
    ask = _Question(admin, reader, message, topic, brokers, tables, trace_topic)
    traces = await ask.traces(message.message_id)
    groups: Sequence[str | None] = [group] if group else await _groups(ask, traces) or [None]
    shared = [*_sent(message, traces), *_before_delivery(message)]
    return message, [await _account(ask, one, shared, traces) for one in groups]


async def _find(admin: AdminClient, message_id: str, topic: str | None) -> StoredMessage:
    """The message of an id, in its topic or where it waits until it is due."""
    found, hidden = await messages.by_id(admin, message_id, topic), ""
    if not found and topic is not None:
        brokers = leader_addresses((await admin.known_route(topic)).broker_datas)
        for waiting in WAITING:
            try:
                found += await messages.by_key(
                    admin, waiting, message_id, unique=True, brokers=brokers
                )
            except ConnectFailed as error:
                if not isinstance(error.__cause__, CallRefused):
                    raise
                hidden = HIDDEN
    if not found:
        raise NotFound(f"no message {message_id}: never stored, or deleted by retention{hidden}")
    return found[0]


class _Question(msgspec.Struct, frozen=True):
    """Everything that is asked about one message."""

    admin: AdminClient
    reader: PullConsumer
    message: StoredMessage
    topic: str
    """Its own topic: a message that is not due yet is in one of the broker's."""
    brokers: Mapping[str, str]
    tables: GroupTables
    trace_topic: str

    @property
    def queue(self) -> MessageQueue:
        """The queue where it is stored."""
        return MessageQueue(self.message.topic, self.message.broker_name, self.message.queue_id)

    async def copies(self, topic: str) -> list[StoredMessage]:
        """Copies of the message in a topic of its brokers; a topic that is not there has none."""
        return await messages.by_key(
            self.admin, topic, self.message.message_id, unique=True, brokers=self.brokers
        )

    async def traces(self, message_id: str) -> list[Trace]:
        """Trace records that clients wrote about a message."""
        try:
            found = await messages.by_key(self.admin, self.trace_topic, message_id)
        except NotFound:
            return []
        texts = (one.body.decode("utf-8", "replace") for one in found)
        return [t for text in texts for t in decode(text) if t.message_id == message_id]


async def _groups(ask: _Question, traces: Sequence[Trace]) -> list[str]:
    """Groups that read the topic, or that traces name."""
    answers, _ = await ask.admin.ask_each(ask.brokers, GetGroupsOfTopic(topic=ask.topic))
    found = {g for reply in answers.values() for g in codec.loads(reply.body, GroupList).group_list}
    found |= {one.group for one in traces if isinstance(one, ConsumeStartTrace) and one.group}
    return sorted(one for one in found if not names.is_internal_group(one))


def _sent(message: StoredMessage, traces: Sequence[Trace]) -> Iterator[Event]:
    yield Event(message.born_ms, Happening.BORN, f"born at {message.born_host}")
    for trace in traces:
        if isinstance(trace, SendTrace):
            result = "" if trace.success else ", which failed"
            text = f"sent by group {trace.group}; the call took {span_text(trace.took_ms)}{result}"
            yield Event(trace.at_ms, Happening.SENT, text)
    if message.topic not in WAITING:
        place = f"{message.broker_name} queue {message.queue_id} offset {message.queue_offset}"
        yield Event(message.stored_ms, Happening.STORED, f"stored at {place}")


def _before_delivery(message: StoredMessage) -> Iterator[Event]:
    """A delay or a transaction before the message was in its own topic, as its properties say."""
    values = message.properties
    if message.sys_flag & TRANSACTION_MASK:
        text = "stored as a half message, about then"
        yield Event(message.born_ms, Happening.PREPARED, text)
    elif not values.keys().isdisjoint(DELAYING):
        level = values.get(properties.DELAY)
        due_ms = _number(values.get(properties.TIMER_OUT_MS))
        how = f"by delay level {level}" if level else "later"
        if due_ms is not None:
            how = f"after {span_text(max(0, due_ms - message.born_ms))}"
        text = f"stored to be delivered {how}, about then"
        yield Event(message.born_ms, Happening.SCHEDULED, text)


async def _account(
    ask: _Question, group: str | None, shared: Sequence[Event], traces: Sequence[Trace]
) -> GroupAccount:
    events, not_known = list(shared), [NOT_WRITTEN_DOWN]
    backlog = Backlog(queue_id=ask.message.queue_id)
    if group is not None:
        answers = await ask_group(ask.admin, ask.brokers, group, ask.tables)
        stats = answers.stats.get(ask.message.broker_name)
        progress = stats.offset_table.get(ask.queue) if stats else None
        events += [*_handled(traces, group), *await _retried(ask, group)]
        backlog = await _backlog(ask, events, answers, progress)
        if not any(one.kind is Happening.STARTED for one in events):
            not_known.append(NOT_TRACED)
        not_known.append(NO_RECORD)
        if not is_finished(events):
            events.append(_now(ask, group, progress))
    if not any(one.kind is Happening.SENT for one in events):
        not_known.append("when its producer sent it: `trace=True` in ProducerConfig shows it")
    if skew := clock_skew_ms(events):
        not_known.append(f"times within {span_text(skew)}: by so much clocks differ at least")
    return GroupAccount(
        group=group,
        events=in_order(events),
        gaps=gaps(events, backlog),
        is_finished=is_finished(events),
        not_known=not_known,
    )


def _handled(traces: Sequence[Trace], group: str) -> Iterator[Event]:
    """Handlers that members of a group started and ended."""
    starts = {
        t.request_id: t for t in traces if isinstance(t, ConsumeStartTrace) and t.group == group
    }
    for start in starts.values():
        text = f"handler started, try {start.tries + 1}"
        yield Event(start.at_ms, Happening.STARTED, text, start.tries)
    outcomes = {one.value: one.name for one in ConsumeReturnType}
    for end in traces:
        if isinstance(end, ConsumeEndTrace) and (begun := starts.get(end.request_id)) is not None:
            kind = Happening.HANDLED if end.success else Happening.FAILED
            outcome = outcomes.get(end.outcome, str(end.outcome)).lower().replace("_", " ")
            text = f"handler ended after {span_text(end.took_ms)}: {outcome}"
            # What a message of a batch took is a share of the batch's time.
            yield Event(end.at_ms or begun.at_ms + end.took_ms, kind, text, begun.tries)


async def _retried(ask: _Question, group: str) -> list[Event]:
    """Copies of the message for later tries, and as a dead letter."""
    events: list[Event] = []
    retry_topics = [
        names.retry_topic(group),
        names.pop_retry_topic(group, ask.topic),
        names.pop_retry_topic_v1(group, ask.topic),
    ]
    for topic in retry_topics:
        for copy in await ask.copies(topic):
            tries = copy.reconsume_times
            text = f"stored again for try {tries + 1}, in {topic}"
            events.append(Event(copy.stored_ms, Happening.RETRIED, text, tries))
            popped_ms = _number(copy.properties.get(properties.FIRST_POP_TIME))
            if popped_ms is not None:
                events.append(Event(popped_ms, Happening.POPPED, "popped first"))
    for copy in await ask.copies(names.dlq_topic(group)):
        text = f"given up after {copy.reconsume_times} tries: a dead letter"
        events.append(Event(copy.stored_ms, Happening.DEAD, text, LAST_TRY))
    return events


def _number(text: str | None) -> int | None:
    """A number of ms in a property; None for another text."""
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 19 else None


def _now(ask: _Question, group: str, progress: QueueProgress | None) -> Event:
    kind, text = Happening.NOW, f"now: group {group} has no progress in this queue"
    if progress is not None:
        text = f"now: group {group} has committed offset {progress.consumer_offset:,} of this queue"
        if progress.consumer_offset > ask.message.queue_offset:
            kind = Happening.PASSED
        if progress.owners:
            text += f", which {', '.join(progress.owners)} reads"
    return Event(ask.admin.clock.now_ms(), kind, text, LAST_TRY)


async def _backlog(
    ask: _Question, events: Sequence[Event], group: GroupAnswers, progress: QueueProgress | None
) -> Backlog:
    """Messages ahead: now for a message that waits, else when it was stored."""
    message, ahead, rate = ask.message, None, None
    members = len(group.members) if group.knows_members else None
    starts = [one.at_ms for one in events if one.kind is Happening.STARTED]
    if starts:
        members = None  # those of now say nothing about then
        if (first := await _first_unread(ask, group.name)) is not None:
            ahead, waited_ms = message.queue_offset - first, min(starts) - message.stored_ms
            rate = ahead * 1000 / waited_ms if waited_ms > 0 else None
    elif progress is not None and progress.consumer_offset <= message.queue_offset:
        ahead = message.queue_offset - progress.consumer_offset
        rate = sum(stats.consume_tps for stats in group.stats.values())
    return Backlog(queue_id=message.queue_id, ahead=ahead, rate=rate, members=members)


async def _first_unread(ask: _Question, group: str) -> int | None:
    """The offset up to which the group had got when the message was stored; None without traces."""
    stored_ms, high = ask.message.stored_ms, ask.message.queue_offset
    low = await ask.reader.min_offset(ask.queue)
    is_known = low >= high
    while low < high:
        middle = (low + high) // 2
        before = await messages.by_offset(ask.reader, ask.queue, middle)
        traces = await ask.traces(before.message_id) if before is not None else []
        starts = [t.at_ms for t in traces if isinstance(t, ConsumeStartTrace) and t.group == group]
        is_known = is_known or bool(starts)
        if starts and min(starts) >= stored_ms:
            high = middle
        else:  # read before, or without a trace
            low = middle + 1
    return low if is_known else None
