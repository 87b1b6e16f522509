"""Checks of a day: nothing lost, nothing early or late, nothing twice that must not be.

lost        an acknowledged message was not handled, a committed one not delivered
early       a message came before its time, or a failed one before its pause was over
late        it came more than a second after, though its broker was up
doubled     a message of a transaction is in the log twice, or any one without a crash
undead      a rolled back message was delivered
unburied    what nobody can handle is not with the dead letters, what nobody ends not given up
"""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from roquet.model import names
from roquet.model import properties as props
from roquet.rules.delay.delay_levels import DEFAULT_LEVELS, retry_level
from roquet.testing.simulation.timed.consumer import TOPIC, is_audited
from roquet.testing.simulation.timed.history import AUDIT, BILLING, DatabaseState, TimedAttempt
from roquet.testing.simulation.timed.scenario import (
    POISON,
    SendKind,
    SendOperation,
    TransactionCourse,
)
from roquet.testing.simulation.timed.stored_messages import LoggedMessage, logged_messages
from roquet.testing.simulation.timed.workload import TimedWorkload

PRECISION_MS: Final = 1_000
"""So late may be what has to come at a time."""

CHECKS: Final = 15
"""Of a transaction before it is given up."""

Spans = Mapping[str, Sequence[tuple[int, int]]]
"""When each broker was up: from, until."""

FOREVER: Final = 1 << 62


def judge(world: TimedWorkload) -> list[str]:
    """All that is wrong."""
    records = logged_messages(world.stores)
    spans = up(world.machines.began_ms, world.machines.died_ms)
    return [
        *lost(world),
        *untimely(world, records, spans),
        *levels(records, spans, world.clock.now_ms()),
        *hurried(world.history.handlings, world.machines.died_ms),
        *doubled(world, records),
        *transactions(world, records),
        *dead_letters(world, records),
        *strays(world),
    ]


def up(began: Mapping[str, list[int]], died: Mapping[str, list[int]]) -> Spans:
    """When each broker was up."""
    return {
        host: list(zip(begins, [*died.get(host, []), FOREVER], strict=True))
        for host, begins in began.items()
    }


def by_when(due_ms: int, spans: Sequence[tuple[int, int]]) -> int:
    """When a message that is due has to be there: a broker needs to be up for a second."""
    for begin_ms, end_ms in spans:
        at_ms = max(due_ms, begin_ms) + PRECISION_MS
        if at_ms < end_ms:
            return at_ms
    return FOREVER


def lost(world: TimedWorkload) -> Iterator[str]:
    """Messages that had to be handled, and were not."""
    for group, name in world.waiting():
        yield f"lost: {name} was never handled by {group}"
    for host, offset in world.open_halves():
        yield f"lost: half message {offset} of {host} is still open"


def untimely(world: TimedWorkload, records: Sequence[LoggedMessage], spans: Spans) -> Iterator[str]:
    """Messages with a delivery time, or a level, that came before or long after it."""
    there = first_there(records)
    for operation in world.day.operations:
        sent, found = world.history.sent.get(operation.name), there.get(operation.name, [])
        if operation.kind not in {SendKind.LEVEL, SendKind.TIMER} or not found:
            continue
        for one in found:
            began_ms = sent.began_ms if sent else world.start_ms + operation.at_ms
            if one.stored_ms < began_ms + operation.wait_ms:
                wait_ms = operation.wait_ms
                yield f"early: {operation.name} at {one.stored_ms}, {wait_ms} after {began_ms}"
        if sent is None:
            continue
        first, due_ms = found[0], sent.acknowledged_ms + operation.wait_ms
        if first.stored_ms > by_when(due_ms, spans[first.host]):
            yield f"late: {operation.name} at {first.stored_ms}, due at {due_ms}"


def first_there(records: Sequence[LoggedMessage]) -> dict[str, list[LoggedMessage]]:
    """What lies in the topic, by name, the oldest first."""
    there: dict[str, list[LoggedMessage]] = defaultdict(list)
    for one in records:
        if one.topic == TOPIC:
            there[one.name].append(one)
    for found in there.values():
        found.sort(key=lambda one: one.stored_ms)
    return there


def levels(records: Sequence[LoggedMessage], spans: Spans, now_ms: int = FOREVER) -> Iterator[str]:
    """What waited at a delay level, and was not delivered in time: also tries of failed ones."""
    delivered: dict[tuple[str, str, str, int], list[int]] = defaultdict(list)
    for one in records:
        delivered[one.host, one.topic, one.name, one.tries].append(one.stored_ms)
    for times in delivered.values():
        times.sort()
    for one in records:
        if one.topic != names.SCHEDULE_TOPIC:
            continue
        due_ms = one.stored_ms + DEFAULT_LEVELS[int(one.properties[props.DELAY]) - 1]
        if due_ms + PRECISION_MS > now_ms:  # the day ends before
            continue
        target = one.properties[props.REAL_TOPIC]
        times = delivered[one.host, target, one.name, one.tries]
        at = bisect_right(times, due_ms - 1)
        if at == len(times):
            yield f"lost: {one.name} ({one.tries}) for {target}, due at {due_ms}, never came"
        elif times[at] > by_when(due_ms, spans[one.host]):
            yield f"late: {one.name} ({one.tries}) for {target} at {times[at]}, due at {due_ms}"


def hurried(handlings: Sequence[TimedAttempt], died: Mapping[str, list[int]]) -> Iterator[str]:
    """Tries before the pause after the failure was over.

    Once a broker has died none is judged: who cannot send a message back tries it again himself.
    """
    deaths = sorted(at for times in died.values() for at in times)
    failed: dict[tuple[str, int], list[TimedAttempt]] = defaultdict(list)
    for one in handlings:
        if one.failed:
            failed[one.name, one.tries].append(one)
    for one in handlings:
        if one.group != BILLING or one.tries == 0:
            continue
        before = [h.ended_ms for h in failed[one.name, one.tries - 1] if h.ended_ms is not None]
        pause_ms = DEFAULT_LEVELS[retry_level(one.tries - 1) - 1]
        if any(ended_ms + pause_ms <= one.began_ms for ended_ms in before):
            continue
        if not deaths or deaths[0] > one.began_ms:
            yield f"early: {one.name} tried for the {one.tries + 1}th time at {one.began_ms}"


def doubled(world: TimedWorkload, records: Sequence[LoggedMessage]) -> Iterator[str]:
    """Messages that are in the topic more than once: after a crash some may be."""
    for name, found in first_there(records).items():
        in_transaction = world.operations[name].kind is SendKind.TRANSACTION
        if len(found) > 1 and (in_transaction or not world.machines.died_ms):
            times = ", ".join(str(one.stored_ms) for one in found)
            yield f"doubled: {name} is there {len(found)} times, of {times}"


def transactions(world: TimedWorkload, records: Sequence[LoggedMessage]) -> Iterator[str]:
    """Messages of transactions that are where they must not be, or are not where they must."""
    there = first_there(records)
    given_up: dict[str, list[LoggedMessage]] = defaultdict(list)
    for one in records:
        if one.topic == names.CHECK_MAX_TIME_TOPIC:
            given_up[one.name].append(one)
    for operation in world.day.operations:
        if operation.kind is SendKind.TRANSACTION and operation.name in world.history.fates:
            judged = _never_ended if operation.course is TransactionCourse.NEVER else _ended
            yield from judged(
                world, operation, there.get(operation.name, []), given_up[operation.name]
            )


def _ended(
    world: TimedWorkload,
    operation: SendOperation,
    there: Sequence[LoggedMessage],
    given_up: Sequence[LoggedMessage],
) -> Iterator[str]:
    name, fate = operation.name, world.history.fates[operation.name][0]
    is_sent = name in world.history.sent
    if given_up:
        yield f"lost: {name} was given up, and {fate.value}"
    if fate is not DatabaseState.KEPT and there:
        yield f"undead: {name} was delivered, and {fate.value}"
    if fate is DatabaseState.KEPT and is_sent and not there:
        yield f"lost: {name} was committed and not delivered"


def _never_ended(
    world: TimedWorkload,
    operation: SendOperation,
    there: Sequence[LoggedMessage],
    given_up: Sequence[LoggedMessage],
) -> Iterator[str]:
    name, is_sent = operation.name, operation.name in world.history.sent
    if there:
        yield f"undead: {name} was delivered, and nobody had committed it"
    if is_sent and len(given_up) != 1:
        yield f"unburied: {name} was given up {len(given_up)} times"
    for one in given_up:
        if one.properties.get(props.TRANSACTION_CHECK_TIMES) != str(CHECKS):
            yield f"unburied: {name} was not asked about {CHECKS} times: {one.properties}"
    if is_sent and not world.machines.died_ms and not _was_asked(world, name):
        yield f"unburied: {name} was asked about {world.history.asked.get(name)} times"


def _was_asked(world: TimedWorkload, name: str) -> bool:
    """Whether the producer heard of every check; while one dies nobody hears."""
    asked = world.history.asked.get(name, 0)
    return asked == CHECKS or (asked < CHECKS and world.producer.changes > 0)


def dead_letters(world: TimedWorkload, records: Sequence[LoggedMessage]) -> Iterator[str]:
    """What is with the dead letters must be what nobody can handle."""
    dead = Counter(one.name for one in records if one.topic == names.dlq_topic(BILLING))
    for operation in world.day.operations:
        is_poison = operation.failures == POISON and world.history.is_to_come(operation)
        if is_poison and not dead[operation.name]:
            yield f"unburied: {operation.name} is not with the dead letters"
        if operation.failures < POISON and dead[operation.name]:
            yield f"unburied: {operation.name} is with the dead letters"
        is_calm = not world.machines.died_ms and not world.day.events
        if is_poison and is_calm and dead[operation.name] != 1:
            yield f"doubled: {operation.name} is with the dead letters {dead[operation.name]} times"


def strays(world: TimedWorkload) -> Iterator[str]:
    """What the audit got, and does not want."""
    for name in sorted(world.history.handled[AUDIT]):
        if not is_audited(world.day, world.operations[name]):
            yield f"stray: the audit got {name}"
