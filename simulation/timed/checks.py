"""Checks of the timed workload: nothing lost, early or late, and no duplicate without a crash.

lost                        an acknowledged message was not handled, a committed one not delivered
early                       a message came before its time, or a retry before its pause was over
late                        it came over a second after its time, though its broker was up
doubled                     it is in the topic twice; without a transaction a crash excuses that
rolled-back-but-delivered   it was delivered though its transaction was rolled back or undecided
not-given-up                a half message without an end was not given up as the settings say
missing-dead-letter         a message that no consumer can handle is not a dead letter
stray                       a filter let a message pass that it must not
"""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from roquet.model import names
from roquet.model import properties as props
from roquet.rules.delay.delay_levels import DEFAULT_LEVELS, retry_level
from simulation.history import HandlingAttempt
from simulation.timed.consumer import AUDIT, BILLING, TOPIC, is_audited
from simulation.timed.history import DatabaseState, TimedHistory
from simulation.timed.scenario import (
    POISON,
    SendKind,
    SendOperation,
    TimedScenario,
    TransactionCourse,
)
from simulation.timed.stored_messages import LoggedMessage

PRECISION_MS: Final = 1_000
"""Allowed delay of a message after its delivery time."""

CHECKS_MAX: Final = 15
"""Checks of a half message before it is given up."""

FOREVER: Final = 1 << 62

UpSpans = Mapping[str, Sequence[tuple[int, int]]]
"""By broker's host: half-open spans [from, until) in ms in which it served."""


class TimedOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the checks read, at the end of a simulation."""

    scenario: TimedScenario
    history: TimedHistory
    messages: Sequence[LoggedMessage]
    up: UpSpans
    died_ms: Mapping[str, Sequence[int]]
    """When each broker crashed, by host."""
    end_ms: int
    producer_crashes: int
    unhandled: Sequence[tuple[str, str]]
    """(group, message name)."""
    open_halves: Sequence[tuple[str, int]]
    """(host, offset)."""

    @property
    def has_crashed(self) -> bool:
        """Whether any broker crashed."""
        return bool(self.died_ms)


def findings(outcome: TimedOutcome) -> list[str]:
    """Every broken promise."""
    return [
        *lost(outcome),
        *untimely(outcome),
        *levels(outcome.messages, outcome.up, outcome.end_ms),
        *hurried(outcome.history.attempts, outcome.died_ms),
        *doubled(outcome),
        *transactions(outcome),
        *dead_letters(outcome),
        *strays(outcome),
    ]


def up_spans(began: Mapping[str, Sequence[int]], died: Mapping[str, Sequence[int]]) -> UpSpans:
    """When each broker was up, from its starts and crashes."""
    return {
        host: list(zip(begins, [*died.get(host, []), FOREVER], strict=True))
        for host, begins in began.items()
    }


def deadline(due_ms: int, spans: Sequence[tuple[int, int]]) -> int:
    """When a message that is due must be delivered: its broker has to be up for a second."""
    for begin_ms, end_ms in spans:
        at_ms = max(due_ms, begin_ms) + PRECISION_MS
        if at_ms < end_ms:
            return at_ms
    return FOREVER


def lost(outcome: TimedOutcome) -> Iterator[str]:
    """Messages that had to be handled, and were not."""
    for group, name in outcome.unhandled:
        yield f"lost: {name} was never handled by {group}"
    for host, offset in outcome.open_halves:
        yield f"lost: half message {offset} of {host} is still open"


def untimely(outcome: TimedOutcome) -> Iterator[str]:
    """Messages with a delivery time, or a level, that came before or long after it."""
    delivered = deliveries(outcome.messages)
    for operation in outcome.scenario.operations:
        name, wait_ms = operation.name, operation.wait_ms
        acknowledged = outcome.history.acknowledged.get(name)
        messages = delivered.get(name, [])
        if operation.kind not in {SendKind.LEVEL, SendKind.TIMER} or not messages:
            continue
        began_ms = acknowledged.began_ms if acknowledged else operation.at_ms
        for message in messages:
            if message.stored_ms < began_ms + wait_ms:
                yield f"early: {name} at {message.stored_ms}, {wait_ms} after {began_ms}"
        if acknowledged is None:
            continue
        first, due_ms = messages[0], acknowledged.acknowledged_ms + wait_ms
        if first.stored_ms > deadline(due_ms, outcome.up[first.host]):
            yield f"late: {name} at {first.stored_ms}, due at {due_ms}"


def deliveries(messages: Sequence[LoggedMessage]) -> dict[str, list[LoggedMessage]]:
    """Messages of the topic by name, the oldest first."""
    delivered: dict[str, list[LoggedMessage]] = defaultdict(list)
    for message in messages:
        if message.topic == TOPIC:
            delivered[message.name].append(message)
    for same_name in delivered.values():
        same_name.sort(key=lambda message: message.stored_ms)
    return delivered


def levels(messages: Sequence[LoggedMessage], up: UpSpans, end_ms: int = FOREVER) -> Iterator[str]:
    """Messages at a delay level that were not delivered in time: also retries of failed ones."""
    delivered: dict[tuple[str, str, str, int], list[int]] = defaultdict(list)
    for message in messages:
        key = (message.host, message.topic, message.name, message.tries)
        delivered[key].append(message.stored_ms)
    for times in delivered.values():
        times.sort()
    for message in messages:
        if message.topic != names.SCHEDULE_TOPIC:
            continue
        due_ms = message.stored_ms + DEFAULT_LEVELS[int(message.properties[props.DELAY]) - 1]
        if due_ms + PRECISION_MS > end_ms:
            continue
        target = message.properties[props.REAL_TOPIC]
        times = delivered[message.host, target, message.name, message.tries]
        at = bisect_right(times, due_ms - 1)
        text = f"{message.name} ({message.tries}) for {target}"
        if at == len(times):
            yield f"lost: {text}, due at {due_ms}, never came"
        elif times[at] > deadline(due_ms, up[message.host]):
            yield f"late: {text} at {times[at]}, due at {due_ms}"


def hurried(
    attempts: Sequence[HandlingAttempt], died: Mapping[str, Sequence[int]]
) -> Iterator[str]:
    """Retries before the pause after the failure was over.

    None is judged after a broker has crashed: a consumer that cannot send a message back tries it
    again itself.
    """
    first_death_ms = min((at for times in died.values() for at in times), default=FOREVER)
    failed: dict[tuple[str, int], list[HandlingAttempt]] = defaultdict(list)
    for attempt in attempts:
        if attempt.failed:
            failed[attempt.name, attempt.tries].append(attempt)
    for attempt in attempts:
        if attempt.group != BILLING or attempt.tries == 0 or attempt.began_ms >= first_death_ms:
            continue
        before = [
            a.ended_ms for a in failed[attempt.name, attempt.tries - 1] if a.ended_ms is not None
        ]
        pause_ms = DEFAULT_LEVELS[retry_level(attempt.tries - 1) - 1]
        if not any(ended_ms + pause_ms <= attempt.began_ms for ended_ms in before):
            yield f"early: {attempt.name}, try {attempt.tries + 1}, at {attempt.began_ms}"


def doubled(outcome: TimedOutcome) -> Iterator[str]:
    """Messages that are in the topic more than once: only after a crash some may be."""
    kinds = {operation.name: operation.kind for operation in outcome.scenario.operations}
    for name, messages in deliveries(outcome.messages).items():
        is_in_transaction = kinds[name] is SendKind.TRANSACTION
        if len(messages) > 1 and (is_in_transaction or not outcome.has_crashed):
            times = ", ".join(str(message.stored_ms) for message in messages)
            yield f"doubled: {name} is there {len(messages)} times, of {times}"


def transactions(outcome: TimedOutcome) -> Iterator[str]:
    """Messages of transactions that were delivered and must not be, or the other way round."""
    delivered = deliveries(outcome.messages)
    given_up: dict[str, list[LoggedMessage]] = defaultdict(list)
    for message in outcome.messages:
        if message.topic == names.CHECK_MAX_TIME_TOPIC:
            given_up[message.name].append(message)
    for operation in outcome.scenario.operations:
        name = operation.name
        if operation.kind is SendKind.TRANSACTION and name in outcome.history.database:
            is_decided = operation.course is not TransactionCourse.NEVER_DECIDE
            check = _decided if is_decided else _undecided
            yield from check(outcome, operation, delivered.get(name, []), given_up[name])


def _decided(
    outcome: TimedOutcome,
    operation: SendOperation,
    delivered: Sequence[LoggedMessage],
    given_up: Sequence[LoggedMessage],
) -> Iterator[str]:
    name, state = operation.name, outcome.history.database[operation.name].state
    is_committed = state is DatabaseState.COMMITTED
    if given_up:
        yield f"lost: {name} was given up, and {state.value}"
    if delivered and not is_committed:
        yield f"rolled-back-but-delivered: {name} was delivered, and {state.value}"
    if is_committed and name in outcome.history.acknowledged and not delivered:
        yield f"lost: {name} was committed and not delivered"


def _undecided(
    outcome: TimedOutcome,
    operation: SendOperation,
    delivered: Sequence[LoggedMessage],
    given_up: Sequence[LoggedMessage],
) -> Iterator[str]:
    name, history = operation.name, outcome.history
    is_acknowledged = name in history.acknowledged
    if delivered:
        yield f"rolled-back-but-delivered: {name} was delivered, and was never committed"
    if is_acknowledged and len(given_up) != 1:
        yield f"not-given-up: {name} was given up {len(given_up)} times"
    for message in given_up:
        if message.properties.get(props.TRANSACTION_CHECK_TIMES) != str(CHECKS_MAX):
            yield f"not-given-up: {name} was not checked {CHECKS_MAX} times: {message.properties}"
    if is_acknowledged and not outcome.has_crashed and not _was_checked(outcome, name):
        yield f"not-given-up: {name} was checked {history.checks.get(name)} times"


def _was_checked(outcome: TimedOutcome, name: str) -> bool:
    """Whether the producer got every check; a check is lost while its process is restarted."""
    checks = outcome.history.checks.get(name, 0)
    return checks == CHECKS_MAX or (checks < CHECKS_MAX and outcome.producer_crashes > 0)


def dead_letters(outcome: TimedOutcome) -> Iterator[str]:
    """Dead letters that are missing, or should not be there."""
    dead_topic = names.dlq_topic(BILLING)
    dead = Counter(message.name for message in outcome.messages if message.topic == dead_topic)
    is_calm = not outcome.has_crashed and not outcome.scenario.events
    for operation in outcome.scenario.operations:
        name, count = operation.name, dead[operation.name]
        is_poison = operation.failures == POISON and outcome.history.must_be_delivered(operation)
        if is_poison and not count:
            yield f"missing-dead-letter: {name} is not with the dead letters"
        if operation.failures < POISON and count:
            yield f"lost: {name} is with the dead letters"
        if is_poison and is_calm and count != 1:
            yield f"doubled: {name} is with the dead letters {count} times"


def strays(outcome: TimedOutcome) -> Iterator[str]:
    """Messages that the audit got, though its subscription does not match them."""
    operations = {operation.name: operation for operation in outcome.scenario.operations}
    for name in sorted(outcome.history.handled(AUDIT)):
        if not is_audited(outcome.scenario, operations[name]):
            yield f"stray: the audit got {name}"
