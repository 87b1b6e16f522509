"""State of a replica group: ids, addresses, sync-state set, removal."""

import pytest
from msgspec.structs import replace
from tests.rules.election.conftest import group_of, led

from roquet.rules.election.group import (
    REPLICAS_MAX,
    BrokerSite,
    Refusal,
    RefusalCode,
    RegisteredReplica,
    ReplicaGroup,
    SetChange,
    alter_set,
    apply_broker_id,
    clean_group,
    misplaced,
    newer_set,
    outdated,
    register_address,
)
from roquet.wire.codes import ResponseCode

TRIO = led(group_of(1, 2, 3), 1, 4, 1, 2)
"""Broker 1 leads in epoch 4, 2 is in sync."""


def code_of(result: ReplicaGroup | Refusal | None) -> RefusalCode:
    assert isinstance(result, Refusal)
    return result.code


def test_refusals_are_apaches_response_codes() -> None:
    assert {f"CONTROLLER_{code.name}": code.value for code in RefusalCode}.items() <= {
        code.name: code.value for code in ResponseCode
    }.items()


def test_the_first_broker_of_a_name_has_id_one() -> None:
    group = apply_broker_id(None, "C", "bc", 1, "h:1;17")
    replica = RegisteredReplica("h:1", "h:1;17", is_unused=True)
    assert group == ReplicaGroup(cluster="C", name="bc", next_id=2, replicas={1: replica})
    assert code_of(apply_broker_id(None, "C", "bc", 2, "h:1;17")) == RefusalCode.BROKER_ID_INVALID


def test_an_id_is_one_brokers_for_good() -> None:
    group = group_of(1)
    assert apply_broker_id(group, "C", "bc", 1, "h:1;17") == group, "the same one, again"
    assert code_of(apply_broker_id(group, "C", "bc", 1, "h:9;99")) == RefusalCode.BROKER_ID_INVALID
    assert code_of(apply_broker_id(group, "C", "bc", 0, "h:9;99")) == RefusalCode.BROKER_ID_INVALID


def test_no_id_is_offered_twice() -> None:
    group = apply_broker_id(group_of(1), "C", "bc", 7, "h:7;1")
    assert isinstance(group, ReplicaGroup)
    assert group.next_id == 8
    lower = apply_broker_id(group, "C", "bc", 3, "h:3;1")
    assert isinstance(lower, ReplicaGroup)
    assert lower.next_id == 8
    assert sorted(lower.replicas) == [1, 3, 7]


def test_a_group_has_a_bounded_number_of_brokers_and_ids_near_the_next_one() -> None:
    group = group_of(1)
    far = apply_broker_id(group, "C", "bc", 2 + REPLICAS_MAX, "h:2;1")
    assert isinstance(far, Refusal)
    assert far.code == RefusalCode.BROKER_ID_INVALID
    for broker_id in range(2, REPLICAS_MAX + 1):
        applied = apply_broker_id(group, "C", "bc", broker_id, f"h:{broker_id};1")
        assert isinstance(applied, ReplicaGroup)
        group = applied
    full = apply_broker_id(group, "C", "bc", REPLICAS_MAX + 1, "h:9;1", live=group.replicas)
    assert isinstance(full, Refusal)
    assert "at most 100 brokers" in full.remark
    assert apply_broker_id(group, "C", "bc", 7, "h:7;1") == group, "known ones are answered"


def test_a_full_group_forgets_an_id_that_was_never_used() -> None:
    group = TRIO
    for broker_id in range(4, REPLICAS_MAX + 1):
        applied = apply_broker_id(group, "C", "bc", broker_id, f"h:{broker_id};1")
        assert isinstance(applied, ReplicaGroup)
        group = applied
    used = alter_set(group, replace(WISH, members=frozenset({1, 5})), {1, 5})
    assert isinstance(used, ReplicaGroup)
    joined = apply_broker_id(used, "C", "bc", REPLICAS_MAX + 1, "h:9;1", live={4, 1})
    assert isinstance(joined, ReplicaGroup)
    assert {4, 5} < joined.replicas.keys(), "alive, and once in sync"
    assert joined.replicas.keys() ^ used.replicas.keys() == {6, REPLICAS_MAX + 1}
    later = apply_broker_id(joined, "C", "bc", 6, "h:6;1")
    assert isinstance(later, ReplicaGroup)
    assert 6 in later.replicas, "it gets its id again"


def at(address: str, cluster: str = "C") -> BrokerSite:
    return BrokerSite(cluster=cluster, address=address)


def test_a_broker_that_moved_has_its_new_address() -> None:
    group = register_address(TRIO, 2, at("h:22"), {1, 3})
    assert isinstance(group, ReplicaGroup)
    assert group.replicas[2] == RegisteredReplica("h:22", "h:2;17")
    assert (group.master, group.master_epoch) == (1, 4)
    assert register_address(TRIO, 2, at("h:2"), {1, 2}) == TRIO
    assert (TRIO.master_address, group_of(1).master_address) == ("h:1", None)


def test_a_broker_that_is_alive_is_nowhere_else() -> None:
    refusal = register_address(TRIO, 2, at("h:22"), {1, 2})
    assert code_of(refusal) == RefusalCode.BROKER_ID_INVALID
    assert isinstance(refusal, Refusal)
    assert "is alive at h:2, and h:22 has a copy of its directory: stop one" in refusal.remark


def test_a_master_that_moved_was_started_again_and_has_to_be_elected() -> None:
    group = register_address(TRIO, 1, at("h:11"), {2})
    assert isinstance(group, ReplicaGroup)
    assert (group.master, group.master_epoch) == (None, 5)
    assert group.in_sync == {1, 2}
    assert group.replicas[1].address == "h:11"


@pytest.mark.parametrize("cluster", ["", "C"])
def test_a_broker_is_where_it_is_registered(cluster: str) -> None:
    assert misplaced(TRIO, 1, at("h:1", cluster)) is None
    assert misplaced(replace(TRIO, cluster=""), 1, at("h:1", "x")) is None
    assert misplaced(TRIO, 9, at("h:9", cluster)) is None, "the state may have lost it"
    for site, why in [
        (at("h:9", cluster), "registered at h:1, not at h:9"),
        (at("h:1", "x"), "of cluster C, not x"),
    ]:
        refusal = misplaced(TRIO, 1, site)
        assert isinstance(refusal, Refusal)
        assert refusal.code == RefusalCode.BROKER_NEED_TO_BE_REGISTERED
        assert why in refusal.remark


def test_a_broker_of_another_cluster_gets_no_id_and_is_not_recorded() -> None:
    for result in (
        apply_broker_id(TRIO, "x", "bc", 4, "h:4;17"),
        apply_broker_id(TRIO, "x", "bc", 1, "h:1;17"),
        register_address(TRIO, 2, at("h:2", "x"), ()),
    ):
        assert isinstance(result, Refusal)
        assert result.code == RefusalCode.INVALID_REQUEST
        assert "give this broker another brokerName, or the address of its own" in result.remark


def test_a_broker_that_does_not_say_its_cluster_is_of_the_groups() -> None:
    group = apply_broker_id(TRIO, "", "bc", 4, "h:4;17")
    assert isinstance(group, ReplicaGroup)
    assert (group.cluster, sorted(group.replicas)) == ("C", [1, 2, 3, 4])
    assert register_address(TRIO, 2, at("h:2", ""), ()) == TRIO


def test_a_removed_group_becomes_the_clusters_that_asks_first() -> None:
    removed = clean_group(TRIO, (), ())
    assert isinstance(removed, ReplicaGroup)
    for cluster, name in (("x", "x"), ("", "C")):
        group = apply_broker_id(removed, cluster, "bc", 4, "h:4;17")
        assert isinstance(group, ReplicaGroup)
        assert group.cluster == name


@pytest.mark.parametrize("group", [None, group_of(1)])
def test_a_broker_without_an_id_has_to_apply_first(group: ReplicaGroup | None) -> None:
    refusal = register_address(group, 2, at("h:2"), ())
    assert code_of(refusal) == RefusalCode.BROKER_NEED_TO_BE_REGISTERED


WISH = SetChange(master=1, master_epoch=4, members=frozenset({1, 2, 3}), set_version=5)


def test_a_master_changes_its_set() -> None:
    assert alter_set(TRIO, WISH, {1, 2, 3}) == replace(
        TRIO, in_sync=frozenset({1, 2, 3}), set_version=6
    )
    alone = replace(WISH, members=frozenset({1}))
    assert alter_set(TRIO, alone, {1}) == replace(TRIO, in_sync=frozenset({1}), set_version=6)


def test_the_first_reason_against_a_change_is_named() -> None:
    change = replace(WISH, members=frozenset({1, 2}), master=2, master_epoch=3, set_version=4)
    assert code_of(alter_set(None, change, ())) == RefusalCode.ALTER_SYNC_STATE_SET_FAILED
    assert code_of(alter_set(TRIO, change, ())) == RefusalCode.ALTER_SYNC_STATE_SET_FAILED
    change = replace(change, members=frozenset({2, 9}))
    assert code_of(alter_set(TRIO, change, ())) == RefusalCode.INVALID_MASTER
    change = replace(change, master=1)
    assert code_of(alter_set(TRIO, change, ())) == RefusalCode.FENCED_MASTER_EPOCH
    change = replace(change, master_epoch=4)
    assert code_of(alter_set(TRIO, change, ())) == RefusalCode.FENCED_SYNC_STATE_SET_EPOCH
    change = replace(change, set_version=5)
    assert code_of(alter_set(TRIO, change, ())) == RefusalCode.BROKER_NOT_ALIVE
    assert code_of(alter_set(TRIO, change, {2})) == RefusalCode.INVALID_REPLICAS
    change = replace(change, members=frozenset({2}))
    assert code_of(alter_set(TRIO, change, {2})) == RefusalCode.ALTER_SYNC_STATE_SET_FAILED


def test_a_group_without_a_master_has_none_to_change_its_set() -> None:
    group = replace(TRIO, master=None, master_epoch=5)
    assert code_of(alter_set(group, WISH, {1, 2, 3})) == RefusalCode.INVALID_MASTER


def test_a_dead_replica_is_removed() -> None:
    group = clean_group(TRIO, {3}, {1, 2})
    assert isinstance(group, ReplicaGroup)
    assert sorted(group.replicas) == [1, 2]
    assert (sorted(group.in_sync), group.set_version, group.next_id) == ([1, 2], 5, 4)


def test_a_removed_member_leaves_the_set_in_a_new_version() -> None:
    group = clean_group(TRIO, {2}, {1, 3})
    assert isinstance(group, ReplicaGroup)
    assert (sorted(group.in_sync), group.set_version) == ([1], 6)
    assert (group.master, group.master_epoch) == (1, 4)


def test_a_removed_master_leaves_its_group_in_a_new_epoch() -> None:
    group = clean_group(TRIO, {1}, {2, 3})
    assert isinstance(group, ReplicaGroup)
    assert (group.master, group.master_epoch) == (None, 5)
    assert (sorted(group.in_sync), group.set_version) == ([2], 6)


def test_the_last_members_of_the_set_are_not_removed_while_there_are_others() -> None:
    refusal = clean_group(TRIO, {1, 2}, {3}, even_living=True)
    assert code_of(refusal) == RefusalCode.INVALID_CLEAN_BROKER_METADATA
    never_led = clean_group(group_of(1, 2), {1}, ())
    assert isinstance(never_led, ReplicaGroup)
    assert sorted(never_led.replicas) == [2]


def test_a_member_that_may_have_more_than_others_of_the_set_is_not_removed() -> None:
    group = led(group_of(1, 2, 3), 1, 4, 1, 2, 3)
    refusal = clean_group(group, {2}, {1, 3}, logs_promised=2)
    assert code_of(refusal) == RefusalCode.INVALID_CLEAN_BROKER_METADATA
    assert isinstance(refusal, Refusal)
    assert "brokers [2] are in the sync-state set" in refusal.remark
    for removed in (
        clean_group(group, {2}, {1, 3}, logs_promised=2, even_living=True),
        clean_group(group, {2}, {1, 3}, logs_promised=1),
        clean_group(group, {2}, {1, 3}, logs_promised=3),
        clean_group(TRIO, {2}, {1, 3}, logs_promised=2),
    ):
        assert isinstance(removed, ReplicaGroup)
        assert sorted(removed.replicas) == [1, 3]
    outside = clean_group(TRIO, {3}, (), logs_promised=1)
    assert isinstance(outside, ReplicaGroup)


def test_a_whole_group_is_removed() -> None:
    removed = replace(
        TRIO, replicas={}, master=None, in_sync=frozenset(), set_version=TRIO.set_version + 1
    )
    assert clean_group(TRIO, (), ()) == removed
    assert clean_group(TRIO, {1, 2, 3}, ()) == removed
    assert clean_group(TRIO, (), {1}, even_living=True) == removed
    assert removed.is_removed
    assert not TRIO.is_removed


def test_a_removed_group_keeps_its_epoch_or_takes_a_later_one_of_its_brokers() -> None:
    removed = clean_group(TRIO, (), ())
    assert isinstance(removed, ReplicaGroup)
    assert (removed.master_epoch, removed.next_id) == (4, 4)
    assert code_of(clean_group(removed, (), ())) == RefusalCode.INVALID_CLEAN_BROKER_METADATA
    later = clean_group(removed, (), {7}, epoch_known=9)
    assert isinstance(later, ReplicaGroup)
    assert later.master_epoch == 9


def test_a_removed_group_has_no_set_to_change_and_no_broker_to_register() -> None:
    removed = clean_group(TRIO, (), ())
    assert isinstance(removed, ReplicaGroup)
    assert code_of(alter_set(removed, WISH, {1})) == RefusalCode.ALTER_SYNC_STATE_SET_FAILED
    refusal = register_address(removed, 1, at("h:1"), ())
    assert code_of(refusal) == RefusalCode.BROKER_NEED_TO_BE_REGISTERED
    again = apply_broker_id(removed, "C", "bc", 2, "h:2;18")
    assert isinstance(again, ReplicaGroup)
    assert (sorted(again.replicas), again.next_id, again.master_epoch) == ([2], 4, 4)


def test_brokers_that_are_alive_are_removed_only_on_demand() -> None:
    for ids in ({2}, ()):
        refusal = clean_group(TRIO, ids, {2})
        assert code_of(refusal) == RefusalCode.INVALID_CLEAN_BROKER_METADATA
    group = clean_group(TRIO, {2}, {1, 2, 3}, even_living=True)
    assert isinstance(group, ReplicaGroup)
    assert sorted(group.replicas) == [1, 3], "Apache's controller removes them all"


def test_a_group_that_is_not_there_cannot_be_removed() -> None:
    assert code_of(clean_group(None, (), ())) == RefusalCode.INVALID_CLEAN_BROKER_METADATA


def known(*members: int, version: int, master: int = 1, epoch: int = 4) -> SetChange:
    return SetChange(
        master=master, master_epoch=epoch, members=frozenset(members), set_version=version
    )


def test_a_set_that_the_master_knows_and_the_state_does_not_is_taken_over() -> None:
    old = replace(TRIO, set_version=7)
    assert newer_set(old, known(1, 3, version=9)) == replace(
        old, in_sync=frozenset({1, 3}), set_version=9
    )


def test_members_that_an_old_state_does_not_know_are_left_out() -> None:
    old = replace(TRIO, set_version=7)
    found = newer_set(old, known(1, 3, 4, version=9))
    assert (found.in_sync, found.set_version) == (frozenset({1, 3}), 10), "the master hears of that"


@pytest.mark.parametrize(
    "told",
    [
        known(1, 3, version=7),
        known(1, 3, version=6),
        known(2, 3, version=9, master=2),
        known(1, 3, version=9, epoch=3),
        known(2, 3, version=9),
    ],
    ids=["known", "late", "not the master", "an earlier epoch", "without the master"],
)
def test_no_other_set_is_taken_over(told: SetChange) -> None:
    old = replace(TRIO, set_version=7)
    assert newer_set(old, told) == old


def test_a_group_whose_stored_state_is_old_is_changed_by_removing_all_of_it() -> None:
    refusal = outdated("bc")
    assert refusal.code == RefusalCode.INVALID_REQUEST
    assert "restore the latest one, or remove the whole group" in refusal.remark
