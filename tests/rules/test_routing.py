import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.rules.conftest import perms, two_brokers

from roquet.model.queue import MessageQueue
from roquet.model.route import TopicRoute
from roquet.model.topic import DataVersion, TopicConfig
from roquet.rules import routing
from roquet.rules.routing import BrokerRegistration, BrokerRegistrations, RegistrationVerdict


def queues(**counts: int) -> dict[str, TopicConfig]:
    return {
        name: TopicConfig(topic_name=name, read_queue_nums=count, write_queue_nums=count)
        for name, count in counts.items()
    }


def broker(
    name: str,
    broker_id: int = 0,
    *,
    port: int = 10911,
    edition: int = 1,
    epoch: int = 0,
    acting: bool | None = False,
    **topics: int,
) -> BrokerRegistration:
    return BrokerRegistration(
        cluster="c",
        broker_name=name,
        broker_id=broker_id,
        address=f"10.0.0.{broker_id}:{port}",
        enable_acting_master=acting,
        version=DataVersion(state_version=epoch, counter=edition),
        topics=queues(**topics),
    )


def known(*registrations: BrokerRegistration) -> BrokerRegistrations:
    state: BrokerRegistrations = {}
    for registration in registrations:
        state = routing.merge(state, registration)
    return state


def route_of(state: BrokerRegistrations, topic: str) -> TopicRoute:
    route = routing.route(state, topic)
    assert route is not None
    return route


def test_a_route_names_every_broker_that_has_the_topic() -> None:
    route = route_of(
        known(broker("b", orders=2, x=1), broker("a", orders=4, x=1), broker("d", x=1)), "orders"
    )
    assert [(q.broker_name, q.write_queue_nums) for q in route.queue_datas] == [("a", 4), ("b", 2)]
    assert [b.broker_name for b in route.broker_datas] == ["a", "b"]
    assert len(route.write_queues("orders")) == 6


def test_a_topic_without_brokers_has_no_route() -> None:
    assert routing.route(known(broker("a", x=1)), "orders") is None
    assert routing.route({}, "orders") is None


def test_a_follower_is_an_address_more_and_brings_no_queues_of_its_own() -> None:
    route = route_of(known(broker("a", 0, orders=4), broker("a", 1, orders=9)), "orders")
    assert route.broker_datas[0].broker_addrs == {0: "10.0.0.0:10911", 1: "10.0.0.1:10911"}
    assert [q.read_queue_nums for q in route.queue_datas] == [4]


def test_without_the_leader_a_topic_can_be_read_but_not_written() -> None:
    state = known(broker("a", 0, orders=1), broker("a", 1, orders=1))
    route = route_of(routing.without(state, [("a", 0)]), "orders")
    assert route.read_queues("orders") == [MessageQueue("orders", "a", 0)]
    assert route.write_queues("orders") == []


def test_the_order_setting_travels_with_the_route() -> None:
    route = routing.route(known(broker("a", orders=1)), "orders", "a:4")
    assert route is not None
    assert route.order_topic_conf == "a:4"


def test_filter_servers_are_listed_by_their_brokers_address() -> None:
    registration = BrokerRegistration(
        cluster="c",
        broker_name="a",
        broker_id=0,
        address="h:1",
        topics=queues(x=1),
        filter_servers=("h:2",),
    )
    assert route_of(known(registration), "x").filter_server_table == {"h:1": ["h:2"]}


def test_a_registration_of_changes_adds_to_what_was_known() -> None:
    state = known(broker("a", orders=4, x=1), broker("a", edition=2, new=3))
    assert routing.topics(state) == ["new", "orders", "x"]


def test_a_whole_registration_replaces_what_was_known() -> None:
    state = routing.merge(
        known(broker("a", orders=4, x=1)), broker("a", edition=2, x=2, y=1), whole=True
    )
    assert routing.topics(state) == ["x", "y"]


def test_the_same_edition_again_changes_nothing() -> None:
    first = known(broker("a", orders=4, x=1))
    assert routing.merge(first, broker("a", orders=4, x=1)) == first


def test_a_broker_that_moved_replaces_its_old_address_and_topics() -> None:
    state = known(broker("a", orders=4, x=1), broker("a", port=7, edition=2, x=1, y=1))
    assert route_of(state, "x").broker_datas[0].broker_addrs == {0: "10.0.0.0:7"}
    assert routing.route(state, "orders") is None


@pytest.mark.parametrize(
    ("old", "new", "verdict"),
    [
        ((1, 5, 900), (0, 6, 901), RegistrationVerdict.OUTDATED),
        ((0, 5, 900), (0, 4, 900), RegistrationVerdict.TAKEN),
        ((0, 5, 900), (0, 5, 899), RegistrationVerdict.TAKEN),
        ((0, 5, 900), (0, 5, 900), RegistrationVerdict.TAKEN),
        ((0, 5, 900), (0, 5, 901), RegistrationVerdict.TAKEN),
        ((0, 5, 900), (0, 6, 800), RegistrationVerdict.TAKEN),
        ((0, 5, 900), (1, 0, 0), RegistrationVerdict.TAKEN),
    ],
)
def test_the_larger_state_version_alone_decides_between_two_addresses_with_one_id(
    old: tuple[int, int, int], new: tuple[int, int, int], verdict: RegistrationVerdict
) -> None:
    def edition(state: int, counter: int, timestamp: int) -> DataVersion:
        return DataVersion(state_version=state, counter=counter, timestamp=timestamp)

    sitting = replace(broker("a", x=1, y=1), version=edition(*old))
    claiming = replace(broker("a", port=7, x=1, y=1), version=edition(*new))
    assert routing.judge(known(sitting), claiming) is verdict
    same_address = replace(sitting, version=edition(*new))
    assert routing.judge(known(sitting), same_address) is RegistrationVerdict.TAKEN


def test_the_master_of_the_later_epoch_stays_and_the_former_one_has_no_address_any_more() -> None:
    state = known(broker("a", epoch=5, orders=4, x=1), broker("a", 1, orders=4, x=1))
    former = replace(broker("a", epoch=4, x=1, y=1), address=state["a", 1].address)
    assert routing.judge(state, former) is RegistrationVerdict.OUTDATED
    assert list(routing.without_address(state, former)) == [("a", 0)]
    same_epoch = broker("a", port=7, epoch=5, x=1, y=1)
    assert routing.judge(state, same_epoch) is RegistrationVerdict.TAKEN
    assert routing.judge(state, broker("a", epoch=4, x=1)) is RegistrationVerdict.TAKEN


def test_a_master_of_a_later_epoch_keeps_the_topics_that_it_does_not_know_yet() -> None:
    before = known(broker("a", 0, epoch=1, orders=4, young=2), broker("a", 1, orders=4))
    after = routing.merge(
        before, replace(broker("a", 0, epoch=2, orders=8), address="10.0.0.1:10911")
    )
    assert {i: r.address for (_, i), r in after.items()} == {0: "10.0.0.1:10911"}
    assert [q.read_queue_nums for q in route_of(after, "orders").queue_datas] == [8]
    assert [q.read_queue_nums for q in route_of(after, "young").queue_datas] == [2]


def test_a_promoted_follower_keeps_the_topics_of_the_leader_that_was_lost() -> None:
    state = known(broker("a", 0, orders=4, young=2), broker("a", 1, orders=4))
    left = routing.without(state, [("a", 0)])
    assert routing.topics(left) == ["orders", "young"]
    promoted = replace(broker("a", 0, orders=4, new=1), address=state["a", 1].address)
    after = routing.merge(left, promoted)
    assert list(after) == [("a", 0)]
    assert routing.topics(after) == ["new", "orders", "young"]
    whole = routing.merge(left, promoted, whole=True)
    assert routing.topics(whole) == ["new", "orders"]


def test_a_leader_that_becomes_a_follower_hands_its_topics_on() -> None:
    state = known(broker("a", 0, orders=4, young=2), broker("a", 1, orders=4))
    demoted = replace(broker("a", 2, orders=4), address=state["a", 0].address)
    after = routing.merge(state, demoted)
    assert sorted(after) == [("a", 1), ("a", 2)]
    assert routing.topics(after) == ["orders", "young"]
    alone = routing.merge(known(broker("a", 0, orders=4, young=2)), demoted)
    assert routing.topics(alone) == ["orders", "young"]


def test_a_follower_of_rocketmq_4_brings_no_topics_and_keeps_those_of_its_leader() -> None:
    follower = broker("a", 1, acting=None, orders=9, own=1)
    assert routing.topics(known(follower)) == []
    state = known(follower, broker("a", 0, orders=4, x=1))
    assert [q.read_queue_nums for q in route_of(state, "orders").queue_datas] == [4]
    left = routing.without(state, [("a", 0)])
    assert routing.topics(left) == ["orders", "x"]
    again = routing.merge(left, replace(follower, version=DataVersion(counter=9)), whole=True)
    assert routing.topics(again) == ["orders", "x"]


def test_the_follower_with_the_lowest_id_brings_the_topics_while_there_is_no_leader() -> None:
    state = known(broker("a", 2, orders=2, x=1), broker("a", 1, orders=1, y=1))
    assert [q.read_queue_nums for q in route_of(state, "orders").queue_datas] == [1]
    assert routing.topics(state) == ["orders", "x", "y"]


def test_a_follower_that_acts_as_the_master_cannot_be_written() -> None:
    state = known(broker("a", 0, acting=True, t=1, x=1), broker("a", 1, acting=True, t=1, x=1))
    assert perms(state, "t") == {"a": 6}
    left = routing.without(state, [("a", 0)])
    assert perms(left, "t") == {"a": 4}
    assert perms(routing.merge(left, state["a", 0]), "t") == {"a": 6}
    other = known(broker("a", 0, t=1, x=1), broker("a", 1, t=1, x=1))
    assert perms(routing.without(other, [("a", 0)]), "t") == {"a": 6}


def test_a_follower_that_acts_as_the_master_is_shown_in_its_place_if_the_settings_say_so() -> None:
    members = "rmq_sys_SYNC_BROKER_MEMBER_a"

    def member(broker_id: int, *, acting: bool = False) -> BrokerRegistration:
        return replace(broker("a", broker_id, acting=acting), topics=queues(**{members: 1, "t": 1}))

    acting = known(member(1, acting=True), member(2, acting=True))

    def addresses(state: BrokerRegistrations, topic: str, shows: bool) -> list[int]:
        route = routing.route(state, topic, shows_acting_master=shows)
        assert route is not None
        return sorted(route.broker_datas[0].broker_addrs)

    assert addresses(acting, "t", True) == [0, 2]
    assert addresses(acting, "t", False) == [1, 2]
    assert addresses(acting, members, True) == [1, 2]
    others = known(member(1), member(2))
    assert addresses(others, "t", True) == [1, 2]
    led = known(member(0, acting=True), member(1, acting=True))
    assert addresses(led, "t", True) == [0, 1]


def test_one_topic_of_an_unknown_broker_is_not_enough() -> None:
    assert routing.judge({}, broker("a", orders=4)) is RegistrationVerdict.INCOMPLETE
    assert (
        routing.judge(known(broker("a", x=1, y=1)), broker("a", orders=4))
        is RegistrationVerdict.TAKEN
    )


def test_a_follower_that_became_the_leader_leaves_its_old_seat() -> None:
    follower = broker("a", 1, orders=1, x=1)
    leader = BrokerRegistration(cluster="c", broker_name="a", broker_id=0, address=follower.address)
    state = known(follower, leader)
    assert list(state) == [("a", 0)]


def test_the_cluster_lists_brokers_by_name_and_by_cluster() -> None:
    other = BrokerRegistration(cluster="d", broker_name="z", broker_id=0, address="h:1")
    info = routing.cluster(known(broker("b"), broker("a"), broker("a", 1), other))
    assert info.cluster_addr_table == {"c": ["a", "b"], "d": ["z"]}
    assert info.broker_addr_table["a"].broker_addrs == {0: "10.0.0.0:10911", 1: "10.0.0.1:10911"}


seats = st.tuples(st.sampled_from("abc"), st.integers(0, 2), st.integers(1, 3), st.integers(1, 9))


@given(st.lists(seats, max_size=12))
def test_whatever_registers_every_route_points_at_brokers_it_names(
    arrivals: list[tuple[str, int, int, int]],
) -> None:
    state = known(*(broker(n, i, port=p, edition=e, orders=i + 1) for n, i, p, e in arrivals))
    route = routing.route(state, "orders")
    assert (route is None) == (not arrivals)
    if route is not None:
        names = {b.broker_name for b in route.broker_datas}
        assert {q.broker_name for q in route.queue_datas} == names == {n for n, *_ in arrivals}


@given(st.lists(seats, min_size=1, max_size=12))
def test_an_address_sits_in_one_seat_of_its_name(arrivals: list[tuple[str, int, int, int]]) -> None:
    state = known(
        *(
            BrokerRegistration(
                cluster="c", broker_name=n, broker_id=i, address=f"h:{p}", topics=queues(t=1)
            )
            for n, i, p, _ in arrivals
        )
    )
    addresses = [(r.broker_name, r.address) for r in state.values()]
    assert len(addresses) == len(set(addresses))


def test_topics_are_found_by_cluster_and_by_flag() -> None:
    known = two_brokers()
    assert routing.topics(known, "cluster-a") == routing.topics(known) == ["t", "u"]
    assert routing.topics(known, "elsewhere") == []
    flagged = {"t": TopicConfig(topic_name="t", topic_sys_flag=routing.UNIT_SUBSCRIBED)}
    known = {**known, ("a", 0): msgspec.structs.replace(known["a", 0], topics=flagged)}
    assert routing.topics_with(known, routing.UNIT_SUBSCRIBED) == ["t"]
    assert routing.topics_with(known, routing.UNIT) == []


def test_the_members_of_a_name_are_told_by_id() -> None:
    assert routing.members(two_brokers(), "a") == {0: "a0:1", 1: "a1:1"}
    assert routing.members(two_brokers(), "z") == {}


def test_very_many_topics_are_listed_in_order() -> None:
    names = [f"t{number:05}" for number in range(3 * routing.SORTED_MAX + 5)]
    topics = {name: TopicConfig(topic_name=name) for name in reversed(names)}
    speaker = replace(broker("a"), topics=topics)
    assert routing.topics({speaker.broker_key: speaker}) == names


def test_topics_of_one_flag_without_another() -> None:
    topics = {
        name: TopicConfig(topic_name=name, topic_sys_flag=flag)
        for name, flag in {"none": 0, "unit": 1, "subscribed": 2, "both": 3}.items()
    }
    speaker = replace(broker("a"), topics=topics)
    known = {speaker.broker_key: speaker}
    assert routing.topics_with(known, routing.UNIT_SUBSCRIBED) == ["both", "subscribed"]
    found = routing.topics_with(known, routing.UNIT_SUBSCRIBED, without=routing.UNIT)
    assert found == ["subscribed"]
