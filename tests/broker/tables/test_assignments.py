from roquet.broker.tables.assignments import AssignmentSnapshot, AssignmentTable
from roquet.model.queue import MessageQueue

Q = tuple(MessageQueue("t", "a", number) for number in range(3))
ONE = AssignmentSnapshot(
    number=1,
    strategy="STICKY",
    members=("m", "n"),
    queues=Q,
    shares={"m": Q[:2], "n": Q[2:]},
    decided_ms=0,
)


def test_a_snapshot_knows_each_queues_owner() -> None:
    assert ONE.owners == {Q[0]: "m", Q[1]: "m", Q[2]: "n"}


def test_the_latest_decision_is_kept_for_each_group_and_topic() -> None:
    table = AssignmentTable()
    assert table.get("g", "t") is None
    table.put("g", "t", ONE)
    assert table.get("g", "t") is ONE
    assert table.get("g", "other") is None
    assert dict(table.of("g")) == {"t": ONE}
    assert dict(table.of("other")) == {}


def test_requests_of_members_are_removed_with_them_and_the_group_with_its_last() -> None:
    table = AssignmentTable()
    table.put("g", "t", ONE)
    table.note_strategy("g", "m", "STICKY")
    table.note_strategy("g", "n", "AVG")
    table.left("g", "m", ["n"])
    assert dict(table.strategies("g")) == {"n": "AVG"}
    assert table.get("g", "t") is ONE, "the others' previous owners"
    table.left("g", "n", [])
    assert dict(table.strategies("g")) == {}
    assert table.get("g", "t") is None
