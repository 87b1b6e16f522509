"""AVG, AVG_BY_CIRCLE and CONFIG, as the articles explain them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.model.errors import UsageError
from roquet.model.queue import MessageQueue
from roquet.rules.allocate import STRATEGIES, GroupAssignment, Strategy, allocate, share_of
from roquet.rules.allocate.rocketmq import (
    average,
    circle,
    from_config,
    leaves_out,
    machine_room,
    nearby,
)


def queues_of(count: int) -> list[MessageQueue]:
    return [MessageQueue("t", "b", i) for i in range(count)]


def ids(strategy: Strategy, count: int, members: int) -> list[list[int]]:
    """Queue ids of each member, for a number of members."""
    shares = allocate(queues_of(count), [f"c{i:02}" for i in range(members)], strategy)
    return [[q.queue_id for q in shares[f"c{i:02}"]] for i in range(members)]


def test_average_gives_neighbours_and_the_first_ones_more() -> None:
    assert ids(average, 10, 4) == [[0, 1, 2], [3, 4, 5], [6, 7], [8, 9]]
    assert ids(average, 8, 3) == [[0, 1, 2], [3, 4, 5], [6, 7]]


def test_circle_deals_like_cards() -> None:
    assert ids(circle, 10, 4) == [[0, 4, 8], [1, 5, 9], [2, 6], [3, 7]]
    assert ids(circle, 8, 3) == [[0, 3, 6], [1, 4, 7], [2, 5]]


def test_members_come_until_there_are_more_than_queues() -> None:
    assert ids(average, 4, 2) == [[0, 1], [2, 3]]
    assert ids(average, 4, 3) == [[0, 1], [2], [3]]
    assert ids(average, 4, 4) == [[0], [1], [2], [3]]
    assert ids(average, 4, 5) == [[0], [1], [2], [3], []]
    assert ids(circle, 4, 3) == [[0, 3], [1], [2]]
    assert ids(circle, 4, 5) == [[0], [1], [2], [3], []]


def test_queues_are_added() -> None:
    assert ids(average, 5, 2) == [[0, 1, 2], [3, 4]]
    assert ids(average, 7, 2) == [[0, 1, 2, 3], [4, 5, 6]]
    assert ids(circle, 7, 2) == [[0, 2, 4, 6], [1, 3, 5]]


def test_a_member_that_is_listed_twice_owns_its_first_share() -> None:
    assert average(queues_of(4), ["a", "a"]) == {"a": queues_of(4)[:2]}
    assert circle(queues_of(4), ["a", "a"]) == {"a": queues_of(4)[::2]}


@given(st.integers(1, 60), st.integers(1, 20))
def test_both_are_even_whatever_the_numbers(count: int, members: int) -> None:
    for strategy in (average, circle):
        dealt = ids(strategy, count, members)
        assert sorted(queue for share in dealt for queue in share) == list(range(count))
        sizes = [len(share) for share in dealt]
        assert sizes == sorted(sizes, reverse=True)
        assert sizes[0] - sizes[-1] <= 1


def test_configured_queues_are_assigned_whatever_the_topic_has() -> None:
    elsewhere = MessageQueue("other", "elsewhere", 2)
    shares = allocate(queues_of(3), ["a", "b"], from_config([elsewhere]))
    assert [share_of(name, shares) for name in ("a", "b", "absent")] == 3 * [(elsewhere,)]


def test_a_list_leaves_out_the_topics_that_it_does_not_name() -> None:
    listed = from_config([MessageQueue("t", "b", 0)])
    assert not leaves_out(listed, "t")
    assert leaves_out(listed, "%RETRY%g")
    assert not leaves_out(average, "%RETRY%g")
    assert not leaves_out(None, "%RETRY%g")


def queues_in(**counts: int) -> list[MessageQueue]:
    """Queues on `room@x`: the given number for each room."""
    return [MessageQueue("t", f"{room}@x", i) for room, n in counts.items() for i in range(n)]


def room_of(name: str) -> str:
    return name.partition("@")[0]


def near(inner: Strategy = average) -> Strategy:
    return nearby(inner, room_of, room_of)


def queue_texts(shares: GroupAssignment) -> dict[str, list[str]]:
    return {m: [f"{room_of(q.broker_name)}{q.queue_id}" for q in s] for m, s in shares.items()}


def test_machine_room_takes_queues_in_its_rooms_only() -> None:
    # The version in articles indexes into the list of all queues, and gives queues of other rooms.
    shares = allocate(queues_in(east=2, west=4), ["m", "n"], machine_room(["west"]))
    assert queue_texts(shares) == {"m": ["west0", "west1"], "n": ["west2", "west3"]}


def test_the_remainder_is_dealt_one_by_one() -> None:
    shares = allocate(queues_in(r=7), ["a", "b", "c"], machine_room(["r"]))
    assert queue_texts(shares) == {"a": ["r0", "r1", "r6"], "b": ["r2", "r3"], "c": ["r4", "r5"]}


def test_an_empty_room_has_nothing_to_give() -> None:
    shares = allocate(queues_in(east=2), ["m"], machine_room(["nowhere"]))
    assert shares == {"m": []}
    assert allocate(queues_in(east=2), ["m"], machine_room([])) == {"m": []}


@pytest.mark.parametrize("name", ["plain", "east@", "east@a@b", "@east", "@@"])
def test_a_broker_without_one_room_before_its_name_is_nowhere(name: str) -> None:
    queues = [MessageQueue("t", name, 0)]
    assert allocate(queues, ["m"], machine_room(["east"])) == {"m": []}


def test_an_at_sign_at_the_end_does_not_count_as_in_java() -> None:
    queues = [MessageQueue("t", "east@a@", 0)]
    assert allocate(queues, ["m"], machine_room(["east"])) == {"m": queues}


def test_nearby_shares_each_room_among_its_members() -> None:
    shares = allocate(queues_in(east=3, west=2), ["east@1", "east@2", "west@1"], near())
    assert queue_texts(shares) == {
        "east@1": ["east0", "east1"],
        "east@2": ["east2"],
        "west@1": ["west0", "west1"],
    }


def test_a_room_without_members_is_for_everybody_after_their_own() -> None:
    shares = allocate(queues_in(east=2, north=2), ["north@1", "west@1"], near())
    assert queue_texts(shares) == {"north@1": ["north0", "north1", "east0"], "west@1": ["east1"]}


def test_members_in_a_room_without_queues_stay_idle_while_each_room_has_somebody() -> None:
    shares = allocate(queues_in(east=2), ["east@1", "west@1"], near())
    assert queue_texts(shares) == {"east@1": ["east0", "east1"], "west@1": []}


def test_the_inner_strategy_is_any() -> None:
    shares = allocate(queues_in(east=4), ["east@1", "east@2"], near(circle))
    assert queue_texts(shares) == {"east@1": ["east0", "east2"], "east@2": ["east1", "east3"]}


def test_a_name_without_a_room_is_reported() -> None:
    with pytest.raises(UsageError, match="t@@x:0 is in no room"):
        allocate([MessageQueue("t", "@x", 0)], ["east@1"], near())
    with pytest.raises(UsageError, match="@1 is in no room"):
        allocate(queues_in(east=1), ["@1"], near())


@given(
    st.dictionaries(st.sampled_from("pqrs"), st.integers(1, 9), min_size=1),
    st.sets(st.sampled_from([f"{room}@{n}" for room in "qrst" for n in range(3)]), min_size=1),
    st.sampled_from(sorted(STRATEGIES)),
)
def test_every_queue_has_one_owner_in_its_room_if_that_has_members(
    counts: dict[str, int], members: set[str], inner: str
) -> None:
    queues = queues_in(**counts)
    shares = allocate(queues, list(members), near(STRATEGIES[inner]))
    assert sorted(q for share in shares.values() for q in share) == sorted(queues)
    inhabited = {room_of(member) for member in members}
    for member, share in shares.items():
        for queue in share:
            room = room_of(queue.broker_name)
            assert room == room_of(member) or room not in inhabited
