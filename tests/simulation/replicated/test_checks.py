"""Checks of the replicated workload: each finds its own fault, and nothing where all is well."""

from typing import Any

from roquet.rules.election.group import ReplicaGroup
from roquet.wire.records.record import Record
from simulation.replicated import checks
from simulation.replicated.history import (
    AcknowledgedOffset,
    AcknowledgedPosition,
    GrantedLease,
    RoleChange,
    SeenMessage,
    StoredState,
)
from simulation.replicated.scenario import BROKERS

ONE, TWO = "10.0.1.1", "10.0.1.2"


def acknowledged(body: str, offset: int, host: str = ONE) -> AcknowledgedOffset:
    return AcknowledgedOffset(body=body, queue_id=0, offset=offset, host=host, at_ms=5)


def decided(host: str, epoch: int, at_ms: int = 5) -> AcknowledgedPosition:
    return AcknowledgedPosition(host=host, epoch=epoch, position=100, at_ms=at_ms)


def state(**fields: Any) -> StoredState:
    usual = {"master": 1, "master_epoch": 1, "in_sync": frozenset({1, 2}), "set_version": 1}
    group = ReplicaGroup(**{"cluster": "c", "name": "g", "replicas": {}, **usual, **fields})
    return StoredState(group=group, at_ms=0)


def beginnings(found: Any) -> list[str]:
    return [finding.split(":")[0] for finding in found]


def test_a_message_that_is_not_where_its_sender_was_told_is_lost() -> None:
    offsets = [acknowledged("a", 0), acknowledged("b", 1), acknowledged("c", 2)]
    assert [*checks.lost(offsets, {(0, 0): "a", (0, 1): "b", (0, 2): "c"})] == []
    found = [*checks.lost(offsets, {(0, 0): "a", (0, 1): "x"})]
    assert found == [
        "lost: b was acknowledged by 10.0.1.1 at 5 as queue 0 offset 1, where x is",
        "lost: c was acknowledged by 10.0.1.1 at 5 as queue 0 offset 2, where nothing is",
    ]


def test_one_offset_for_two_messages_is_doubled() -> None:
    offsets = [acknowledged("a", 0), acknowledged("b", 1)]
    assert [*checks.doubled_acknowledgements(offsets)] == []
    found = [*checks.doubled_acknowledgements([*offsets, acknowledged("c", 1, TWO)])]
    assert beginnings(found) == ["doubled"]
    assert "as b by 10.0.1.1 and as c by 10.0.1.2" in found[0]


def test_two_messages_of_one_log_with_one_offset_are_doubled() -> None:
    def record(topic: str, offset: int, body: bytes) -> Record:
        return Record(topic, 0, offset, 0, 1, body, b"", 0, 0, 0, b"", 0, b"", 0, 0, 0)

    records = [record("t", 0, b"a"), record("t", 1, b"b"), record("other", 0, b"\xff")]
    assert checks.stored_messages(records, "t") == ({(0, 0): "a", (0, 1): "b"}, [])
    _, found = checks.stored_messages([*records, record("t", 1, b"c")], "t")
    assert found == ["doubled: queue 0 offset 1 is b and c in one log"]


def test_a_hole_in_a_queue_is_found() -> None:
    assert [*checks.holes({(0, 0): "a", (0, 1): "b", (1, 0): "c"})] == []
    assert beginnings(checks.holes({(0, 0): "a", (0, 2): "b"})) == ["doubled"]


def test_two_brokers_that_acknowledge_in_one_epoch_are_found_once() -> None:
    fine = [decided(ONE, 1), decided(TWO, 2), decided(ONE, 1)]
    assert [*checks.masters(fine)] == []
    assert beginnings(checks.masters([*fine, decided(TWO, 1), decided(TWO, 1)])) == ["masters"]


def test_an_acknowledgement_without_a_lease_of_its_epoch_is_found_once() -> None:
    leases = [GrantedLease(broker_id=1, epoch=3, at_ms=10, until_ms=50)]
    assert [*checks.unleased([decided(ONE, 3, 10), decided(ONE, 3, 49)], leases)] == []
    late = [decided(ONE, 3, 50), decided(ONE, 3, 51)]
    assert beginnings(checks.unleased(late, leases)) == ["lease"]
    assert beginnings(checks.unleased([decided(ONE, 3, 9)], leases)) == ["lease"]
    assert beginnings(checks.unleased([decided(ONE, 4, 20)], leases)) == ["lease"]
    assert beginnings(checks.unleased([decided(TWO, 3, 20)], leases)) == ["lease"]


def test_a_message_that_a_consumer_got_and_that_is_gone_is_found_once() -> None:
    seen = [
        SeenMessage(body=body, queue_id=0, offset=offset, position=1, host=TWO, at_ms=9)
        for body, offset in (("a", 0), ("b", 1), ("b", 1))
    ]
    assert [*checks.vanished(seen, {(0, 0): "a", (0, 1): "b"})] == []
    assert beginnings(checks.vanished(seen, {(0, 0): "a", (0, 1): "c"})) == ["vanished"]


def test_epochs_and_versions_only_grow() -> None:
    fine = [state(), state(set_version=2, in_sync=frozenset({1})), state(master_epoch=2, master=2)]
    assert [*checks.epochs(fine[:2])] == []
    for wrong in (
        state(master_epoch=0),
        state(master=2),
        state(set_version=0),
        state(in_sync=frozenset({1, 3})),
    ):
        assert beginnings(checks.epochs([state(), wrong])) == ["epochs"]


def test_who_is_elected_was_in_the_set() -> None:
    first = state(master=None, master_epoch=0, in_sync=frozenset(), set_version=0)
    assert [*checks.outsiders([first, state()], frozenset({1, 2, 3}))] == []
    elected = state(master=2, master_epoch=2, in_sync=frozenset({2}), set_version=2)
    assert [*checks.outsiders([state(), elected], frozenset({1, 2, 3}))] == []
    nobody = state(master=None, master_epoch=2)
    assert [*checks.outsiders([state(), nobody], frozenset({1, 2, 3}))] == []
    wrong = state(master=3, master_epoch=2, in_sync=frozenset({3}), set_version=2)
    assert beginnings(checks.outsiders([state(), wrong], frozenset({1, 2, 3}))) == ["outsider"]
    assert [*checks.outsiders([state(), wrong], frozenset({1, 2, 3}), frozenset({2}))] == []


def test_a_learner_is_never_in_the_set() -> None:
    states = [state(), state(in_sync=frozenset({1, 2, 3}), set_version=2)]
    assert [*checks.outsiders(states, frozenset({1, 2, 3}))] == []
    assert beginnings(checks.outsiders(states, frozenset({1, 2}))) == ["outsider"]


def test_a_process_never_goes_back_to_an_earlier_epoch_nor_leads_anothers() -> None:
    def change(host: str, process: int, epoch: int, leads: bool = False) -> RoleChange:
        return RoleChange(host=host, process=process, epoch=epoch, leads=leads, at_ms=0)

    fine = [change(ONE, 1, 2, True), change(ONE, 1, 2), change(ONE, 2, 1), change(TWO, 1, 3, True)]
    assert [*checks.roles(fine)] == []
    assert beginnings(checks.roles([*fine, change(TWO, 1, 2)])) == ["epochs"]
    assert beginnings(checks.roles([*fine, change(TWO, 2, 2, True)])) == ["masters"]


def test_logs_that_differ_are_found() -> None:
    assert [*checks.unequal({ONE: b"ab", TWO: b"ab"})] == []
    assert beginnings(checks.unequal({ONE: b"ab", TWO: b"abc", "z": b"ab"})) == ["unequal"]


def test_all_checks_look_at_one_outcome() -> None:
    fields: dict[str, Any] = {
        "offsets": [acknowledged("a", 0)],
        "positions": [decided(ONE, 1)],
        "seen": [],
        "states": [state()],
        "operated": frozenset(),
        "leases": [GrantedLease(broker_id=1, epoch=1, at_ms=0, until_ms=50)],
        "roles": [],
        "members": frozenset(range(1, BROKERS + 1)),
        "stored": {(0, 0): "a"},
        "logs": {ONE: b"a", TWO: b"a"},
        "unhealed": None,
    }
    assert checks.findings(checks.ReplicatedOutcome(**fields)) == []
    outsider = state(master=3, master_epoch=2, in_sync=frozenset({3}), set_version=2)
    fields["states"] = [state(), outsider]
    assert beginnings(checks.findings(checks.ReplicatedOutcome(**fields))) == ["outsider"]
    fields["operated"] = frozenset({2})
    assert checks.findings(checks.ReplicatedOutcome(**fields)) == []
    fields |= {"unhealed": "nobody leads", "stored": None, "leases": []}
    found = checks.findings(checks.ReplicatedOutcome(**fields))
    assert beginnings(found) == ["lease", "unhealed"]
