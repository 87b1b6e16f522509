"""History of a replicated group: what is noted, and the lines that tell of it."""

from msgspec.structs import replace

from roquet.rules.election.group import ReplicaGroup
from simulation.replicated.history import (
    AcknowledgedOffset,
    AcknowledgedPosition,
    ReplicatedHistory,
    RoleChange,
    SeenMessage,
)


def history() -> ReplicatedHistory:
    return ReplicatedHistory(lambda: 40)


def test_a_broken_promise_is_noted_once() -> None:
    noted = history()
    noted.break_promise("fork: here")
    noted.break_promise("fork: here")
    assert (noted.broken, len(noted.lines)) == (["fork: here"], 1)


def test_an_acknowledged_message_is_noted_with_its_place() -> None:
    noted = history()
    message = AcknowledgedOffset(body="p0.1", queue_id=1, offset=5, host="h", at_ms=40)
    noted.acknowledged_at(message, 10)
    assert noted.offsets == [message]
    assert noted.acknowledged["p0.1"].began_ms == 10
    assert noted.lines[-1].endswith("stored p0.1 1/5 by h")


def test_decisions_leases_states_and_roles_are_kept() -> None:
    noted = history()
    position = AcknowledgedPosition(host="h", epoch=2, position=700, at_ms=40)
    noted.decided(position)
    noted.granted(1, 2, 600)
    noted.saved(ReplicaGroup(cluster="c", name="g", replicas={}, master=1, master_epoch=2))
    change = RoleChange(host="h", process=1, epoch=2, leads=True, at_ms=40)
    noted.changed_role(change, "leads")
    assert noted.positions == [position]
    assert (noted.leases[0].at_ms, noted.leases[0].until_ms) == (40, 640)
    assert noted.states[0].group.master == 1
    assert noted.roles == [change]
    assert noted.lines[-1].endswith("h leads in epoch 2")


def test_an_operators_election_counts_once_it_is_stored() -> None:
    noted, elected = history(), list[int]()
    group = ReplicaGroup(cluster="c", name="g", replicas={}, master=1, master_epoch=6)
    attempt = noted.attempt(2, 6, lambda: elected.append(2))
    noted.saved(group)
    noted.saved(replace(group, master=2))
    noted.withdraw_attempt(attempt)
    noted.saved(replace(group, master=2, master_epoch=7))
    noted.attempt(2, 6, lambda: elected.append(2))
    assert (noted.operated, elected) == (set(), [])
    for _ in range(2):
        noted.saved(replace(group, master=2, master_epoch=7))
    assert (noted.operated, elected) == ({7}, [2])
    assert any(line.endswith("an operator has had 2 elected in epoch 7") for line in noted.lines)


def test_an_election_whose_answer_was_lost_counts_though_a_later_order_was_refused() -> None:
    noted, elected = history(), list[str]()
    group = ReplicaGroup(cluster="c", name="g", replicas={}, master_epoch=4)
    first = noted.attempt(2, 4, lambda: elected.append("first"))
    first.has_failed = True
    noted.withdraw_attempt(noted.attempt(2, 4, lambda: elected.append("second")))
    noted.saved(replace(group, master=2, master_epoch=5))
    assert (noted.operated, elected) == ({5}, ["first"])


def test_an_election_whose_answer_was_lost_cannot_come_after_another_change() -> None:
    noted, elected = history(), list[int]()
    group = ReplicaGroup(cluster="c", name="g", replicas={}, master_epoch=4)
    noted.attempt(2, 4, lambda: elected.append(2)).has_failed = True
    noted.saved(group)
    noted.saved(replace(group, master=2, master_epoch=5))
    assert (noted.operated, elected) == (set(), [])


def seen(position: int, host: str = "h") -> SeenMessage:
    return SeenMessage(body="b", queue_id=0, offset=0, position=position, host=host, at_ms=40)


def test_messages_behind_a_position_are_forgotten() -> None:
    noted = history()
    for position in (100, 200, 300):
        noted.saw(seen(position))
    noted.forget(1, 200)
    assert [message.position for message in noted.seen] == [100, 200]


def test_what_brokers_show_that_have_the_forgotten_part_still_may_vanish() -> None:
    noted = ReplicatedHistory(lambda: 40, {"old": 3, "new": 4}.__getitem__)
    assert noted.lasting("old", 300) == 300
    noted.forget(3, 200)
    for host in ("old", "new"):
        noted.saw(seen(150, host))
        noted.saw(seen(300, host))
    assert [(each.host, each.position) for each in noted.seen] == [
        ("old", 150),
        ("new", 150),
        ("new", 300),
    ]
    noted.forget(2, 100)
    assert noted.lasting("old", 300) == 200, "it has a later epoch than that"
