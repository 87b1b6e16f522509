"""AVG, AVG_BY_CIRCLE and CONFIG, as the articles explain them."""

from hypothesis import given
from hypothesis import strategies as st

from roquet.model.queue import MessageQueue
from roquet.rules.allocate import Strategy, allocate, share_of
from roquet.rules.allocate.rocketmq import average, circle, from_config, leaves_out


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
