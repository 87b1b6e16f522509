from msgspec.structs import replace

from roquet.admin.replicas import ReplicaStatus
from roquet.dashboard.sampling.role_changes import role_changes

MASTER = ReplicaStatus(broker="b", broker_id=0, address="h:1", is_master=True, is_in_sync=True)
REPLICA = replace(MASTER, broker_id=1, address="h:2", is_master=False)
OTHER = replace(MASTER, broker="c", address="h:9")


def texts(before: list[ReplicaStatus], after: list[ReplicaStatus]) -> list[str]:
    return [change.text for change in role_changes(before, after, 5)]


def test_the_first_sample_and_one_without_changes_say_nothing() -> None:
    assert texts([], [MASTER, REPLICA]) == texts([MASTER, REPLICA], [REPLICA, MASTER]) == []


def test_another_master_is_one_change() -> None:
    after = [replace(MASTER, is_master=False), replace(REPLICA, is_master=True)]
    (change,) = role_changes([MASTER, REPLICA], after, 5)
    assert (change.at_ms, change.text, change.path) == (5, "b: h:2 is master now", "/brokers/b")


def test_a_master_that_is_away_and_back_is_named() -> None:
    assert texts([MASTER, REPLICA], [REPLICA]) == ["b: the master h:1 is away"]
    assert texts([REPLICA], [MASTER, REPLICA]) == ["b: h:1 is master now"]


def test_replicas_come_and_go_and_answer_and_are_in_sync_or_not() -> None:
    late, silent = replace(REPLICA, is_in_sync=False), replace(REPLICA, fault="refused")
    assert texts([MASTER, REPLICA], [MASTER, late]) == ["b: h:2 is out of sync"]
    assert texts([MASTER, late], [MASTER, REPLICA]) == ["b: h:2 is in sync again"]
    assert texts([MASTER, REPLICA], [MASTER, silent]) == ["b: h:2 does not answer"]
    assert texts([MASTER, silent], [MASTER, REPLICA]) == ["b: h:2 answers again"]
    assert texts([MASTER, REPLICA], [MASTER]) == ["b: h:2 is gone"]
    assert texts([MASTER], [MASTER, REPLICA]) == ["b: h:2 is new"]


def test_brokers_are_told_apart() -> None:
    assert texts([MASTER, OTHER], [MASTER]) == ["c: the master h:9 is away"]
    unknown = replace(REPLICA, is_in_sync=None)
    assert texts([MASTER, REPLICA, OTHER], [MASTER, unknown, OTHER]) == []
