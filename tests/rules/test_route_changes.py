import msgspec
import pytest
from msgspec.structs import replace
from tests.rules.conftest import perms, two_brokers

from roquet.model.route import QueueData
from roquet.model.topic import DataVersion
from roquet.rules import route_changes, routing
from roquet.rules.route_changes import LowestIdChange, after_loss, after_registration
from roquet.rules.routing import BrokerRegistration, BrokerRegistrations


def test_write_permission_is_taken_from_all_of_one_name_and_given_back() -> None:
    known = two_brokers()
    assert (route_changes.topic_count(known, "a"), route_changes.topic_count(known, "z")) == (2, 0)
    wiped = route_changes.with_write_permission(known, "a", may_write=False)
    assert perms(wiped, "t") == {"a": 4, "b": 6}
    assert {wiped["a", i].topics["u"].perm for i in (0, 1)} == {4}
    assert route_changes.with_write_permission(wiped, "a", may_write=True) == known


def test_operators_changes_stay_until_the_broker_has_other_topics() -> None:
    known = two_brokers()
    wiped = route_changes.with_write_permission(known, "a", may_write=False)
    same = known["a", 0]
    for whole in (False, True):
        assert perms(routing.merge(wiped, same, whole=whole), "t")["a"] == 4
        newer = msgspec.structs.replace(same, version=DataVersion(counter=2))
        assert perms(routing.merge(wiped, newer, whole=whole), "t")["a"] == 6


def test_a_topic_is_forgotten_and_registered_by_hand() -> None:
    known = two_brokers()
    assert perms(route_changes.without_topic(known, "t", "cluster-a"), "t") == {"b": 6}
    assert perms(route_changes.without_topic(known, "t"), "t") == {}
    assert route_changes.without_topic(known, "none") == known
    data = QueueData(broker_name="b", read_queue_nums=3, write_queue_nums=2, perm=4)
    assert perms(route_changes.with_topic(known, "new", [data]), "new") == {"b": 4}
    stranger = msgspec.structs.replace(data, broker_name="z")
    assert route_changes.with_topic(known, "new", [data, stranger]) == known


def member(broker_id: int, *, name: str = "a", acting: bool = True) -> BrokerRegistration:
    return BrokerRegistration(
        cluster="c",
        broker_name=name,
        broker_id=broker_id,
        address=f"{name}{broker_id}:1",
        ha_address=f"{name}{broker_id}:2",
        enable_acting_master=acting,
    )


def known(*members: BrokerRegistration) -> BrokerRegistrations:
    return {each.broker_key: each for each in members}


def registered(before: BrokerRegistrations, new: BrokerRegistration) -> LowestIdChange | None:
    return after_registration(before, routing.merge(before, new), new)


def lost(before: BrokerRegistrations, broker_id: int) -> LowestIdChange | None:
    return after_loss(routing.without(before, [("a", broker_id)]), before["a", broker_id])


def test_a_smaller_id_is_announced_to_all_others() -> None:
    before = known(member(1), member(2), member(0, name="b"))
    assert registered(before, member(0)) == LowestIdChange(
        broker_name="a", broker_id=0, address="a0:1", ha_address="a0:2", told=("a1:1", "a2:1")
    )


@pytest.mark.parametrize("acting", [True, False])
def test_a_smaller_id_is_announced_whether_or_not_brokers_act_as_masters(acting: bool) -> None:
    assert registered(known(member(1, acting=acting)), member(0, acting=acting)) is not None


def test_a_follower_that_became_the_leader_hears_of_itself_when_it_is_alone() -> None:
    promoted = replace(member(0), address="a1:1")
    change = registered(known(member(1)), promoted)
    assert change is not None
    assert (change.broker_id, change.told) == (0, ("a1:1",))
    change = registered(known(member(1), member(2)), promoted)
    assert change is not None
    assert change.told == ("a2:1",)


def test_the_first_member_and_one_with_a_larger_id_change_nothing() -> None:
    assert registered({}, member(1)) is None
    assert registered(known(member(1)), member(2)) is None
    assert registered(known(member(1)), member(1)) is None


def test_a_loss_of_the_lowest_id_is_announced_to_all_that_remain() -> None:
    before = known(member(0), member(1), member(2))
    assert lost(before, 0) == LowestIdChange(
        broker_name="a", broker_id=1, address="a1:1", lost_address="a0:1", told=("a1:1", "a2:1")
    )


def test_a_loss_of_another_member_or_of_the_last_one_changes_nothing() -> None:
    assert lost(known(member(0), member(1)), 1) is None
    assert lost(known(member(0)), 0) is None


def test_a_loss_is_announced_to_brokers_that_act_as_masters_alone() -> None:
    assert lost(known(member(0, acting=False), member(1, acting=False)), 0) is None
