"""Checks of deliveries: each finds its own fault, and nothing where all is well."""

from typing import Any

from roquet.wire.records.record import Record
from simulation.replicated.delivery_checks import (
    DeliveredMessages,
    DeliveryOutcome,
    delivered_messages,
    findings,
)
from simulation.replicated.history import DeferredMessage

MESSAGE = DeferredMessage(body="d.1", due_ms=2_000, host="10.0.1.1", at_ms=1_000)


def outcome(
    later: dict[str, list[int]] | None = None, dead: frozenset[str] = frozenset(), **fields: Any
) -> DeliveryOutcome:
    nothing: dict[str, Any] = {
        "deferred": {},
        "rolled_back": frozenset(),
        "acknowledged": (),
        "settled": frozenset(),
        "is_in_time": True,
    }
    return DeliveryOutcome(stored=DeliveredMessages(later or {}, dead), **{**nothing, **fields})


def test_a_deferred_message_that_never_came_is_undelivered() -> None:
    deferred = {"d.1": MESSAGE}
    assert findings(outcome({"d.1": [2_000]}, deferred=deferred)) == []
    assert findings(outcome({"d.2": [2_000]}, deferred=deferred)) == [
        "undelivered: d.1 was acknowledged by 10.0.1.1 at 1000 for 2000, and never came"
    ]


def test_a_second_delivery_is_none_of_the_faults() -> None:
    assert findings(outcome({"d.1": [2_000, 5_000]}, deferred={"d.1": MESSAGE})) == []


def test_a_delivery_before_its_time_is_early_unless_clocks_were_wrong() -> None:
    early = outcome({"d.1": [1_998, 2_100]}, deferred={"d.1": MESSAGE})
    assert findings(early) == ["early: d.1 came at 1998, and was due at 2000"]
    wrong = outcome({"d.1": [1_998]}, deferred={"d.1": MESSAGE}, is_in_time=False)
    assert findings(wrong) == []


def test_a_message_that_was_rolled_back_must_not_come() -> None:
    found = findings(outcome({"d.1": [2_000]}, rolled_back=frozenset({"d.1", "d.2"})))
    assert found == ["rolled-back: d.1 was delivered"]


def test_an_order_is_handled_or_a_dead_letter() -> None:
    orders = ("p.1", "p.2", "p.3")
    found = findings(
        outcome(dead=frozenset({"p.2"}), acknowledged=orders, settled=frozenset({"p.1"}))
    )
    assert found == ["unhandled: p.3 was never popped, or never came again"]


def test_deliveries_are_read_from_their_topics() -> None:
    def record(topic: str, body: bytes) -> Record:
        return Record(topic, 0, 0, 0, 1, body, b"", 0, 0, 0, b"", 5_000, b"", 0, 0, 0)

    records = [record("later", b"a"), record("%DLQ%poppers", b"b"), record("orders", b"c")]
    delivered = delivered_messages(records, 1_000)
    assert (delivered.later, delivered.dead) == ({"a": [4_000]}, {"b"})
