"""The order that all members agree on, and fixed lists of queues."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.model.errors import UsageError
from roquet.model.queue import MessageQueue
from roquet.rules.allocate import STRATEGIES, allocate, from_config, machine_room
from roquet.rules.allocate.assignment import (
    FAULTS_MAX,
    FixedAssignment,
    faults,
    in_java_order,
    sorted_queues,
    unowned,
    utf16,
    validated_assignment,
)

BEYOND, WITHIN = "\U0001f600", "\uffee"  # the first is less in UTF-16, not in code points

any_queues = st.lists(
    st.builds(
        MessageQueue,
        st.sampled_from(["t", "T", BEYOND, WITHIN]),
        st.sampled_from(["a", "b-1", "b", BEYOND, WITHIN]),
        st.integers(0, 2**31 - 1) | st.integers(0, 12),
    ),
    max_size=40,
)


def java_order(queue: MessageQueue) -> Any:
    return utf16(queue.topic), utf16(queue.broker_name), queue.queue_id


@given(any_queues)
def test_queues_are_in_the_order_of_topic_broker_and_id(queues: list[MessageQueue]) -> None:
    assert sorted_queues(queues) == sorted(queues, key=java_order)


def test_names_are_sorted_as_java_does() -> None:
    queues = [MessageQueue("t", name, 0) for name in (WITHIN, BEYOND)]
    ordered, members = in_java_order(queues, [WITHIN, BEYOND])
    assert [queue.broker_name for queue in ordered] == [BEYOND, WITHIN]
    assert members == [BEYOND, WITHIN]


def test_half_a_pair_of_surrogates_has_a_place_too() -> None:
    assert in_java_order([MessageQueue("t", "b", 0)], ["\ud800", "a"])[1] == ["a", "\ud800"]


def test_missing_queues_and_members_are_reported() -> None:
    with pytest.raises(UsageError, match="no queues"):
        in_java_order([], ["a"])
    with pytest.raises(UsageError, match="no members"):
        in_java_order([MessageQueue("t", "b", 0)], [])


def test_a_fixed_list_is_for_whoever_asks() -> None:
    queues = [MessageQueue("t", "b", 0)]
    shares = FixedAssignment(queues, ["a", "b", "a"])
    assert dict(shares) == {"a": queues, "b": queues}
    assert len(shares) == 2
    assert shares.get("somebody") == queues


QUEUES = [MessageQueue("t", "b", i) for i in range(4)]
FOREIGN = MessageQueue("other", "b", 0)


@pytest.mark.parametrize(
    ("shares", "sentence"),
    [
        ({"a": QUEUES, "b": [FOREIGN]}, "other@b:0 is not one of the 4 queues"),
        ({"a": QUEUES, "b": QUEUES[:1]}, "t@b:0 is given to 'a' and to 'b'"),
        ({"a": [*QUEUES, QUEUES[2]]}, "t@b:2 is given to 'a' and to 'a'"),
        ({"a": QUEUES, "x": []}, "'x' has a share and is not a member"),
        ({"a": None}, "the share of 'a' is None, not queues"),
        ({"a": "t@b:0"}, "the share of 'a' is 't@b:0', not queues"),
        ({"a": iter(QUEUES)}, "the share of 'a' is <list_iterator"),
        ({"a": ["t@b:0"]}, "the share of 'a' has 't@b:0' in it, not a queue"),
        ({"a": [[0]]}, "the share of 'a' has [0] in it, not a queue"),
        (None, "None is not a mapping of members to queues"),
        ([*QUEUES], "is not a mapping of members to queues"),
    ],
)
def test_a_wrong_result_of_a_strategy_is_described(shares: Any, sentence: str) -> None:
    assert sentence in "; ".join(faults(shares, QUEUES, ["a", "b"]))


def test_the_number_of_reported_faults_is_limited() -> None:
    wrong = {"a": [MessageQueue("t", "b", n) for n in range(100, 200)]}
    assert len(faults(wrong, QUEUES, ["a"])) == FAULTS_MAX
    assert len(faults("x" * 1000, QUEUES, ["a"])[0]) < 200


@given(
    st.sampled_from(sorted(STRATEGIES)),
    st.integers(1, 30),
    st.sets(st.text(min_size=1), min_size=1),
)
def test_our_strategies_have_no_faults(name: str, count: int, members: set[str]) -> None:
    queues = [MessageQueue("t", "b", i) for i in range(count)]
    shares = allocate(queues, list(members), STRATEGIES[name])
    assert not faults(shares, queues, list(members))
    assert not unowned(shares, queues)


def test_queues_without_an_owner_are_found_in_order() -> None:
    assert unowned({"a": [QUEUES[2]], "b": []}, QUEUES) == [QUEUES[0], QUEUES[1], QUEUES[3]]
    here = [MessageQueue("t", name, 0) for name in ("east@a", "west@b")]
    shares = validated_assignment(here, ["a"], machine_room(["west"]))
    assert unowned(shares, here) == here[:1]


def test_a_configured_list_is_only_checked_for_duplicates() -> None:
    assert not faults(from_config([FOREIGN])(QUEUES, ["a", "b"]), QUEUES, ["a", "b"])
    twice = from_config([FOREIGN, *QUEUES, FOREIGN])(QUEUES, ["a"])
    assert faults(twice, QUEUES, ["a"]) == ["other@b:0 is in the list twice"]


def test_a_strategy_that_is_right_is_heard() -> None:
    assert validated_assignment(QUEUES[::-1], ["b", "a"], STRATEGIES["AVG"]) == allocate(
        QUEUES, ["a", "b"]
    )


def test_a_strategy_that_is_wrong_is_refused() -> None:
    with pytest.raises(UsageError, match="answer is wrong: other@b:0 is not one"):
        validated_assignment(QUEUES, ["a"], lambda _queues, _members: {"a": [FOREIGN]})
    with pytest.raises(UsageError, match="None is not a mapping"):
        validated_assignment(QUEUES, ["a"], lambda _queues, _members: None)  # type: ignore[arg-type,return-value]
    with pytest.raises(UsageError, match="the share of 'a' is 5, not queues"):
        validated_assignment(QUEUES, ["a"], lambda _queues, _members: {"a": 5})  # type: ignore[dict-item]


def test_shares_that_can_be_read_only_once_are_stored() -> None:
    def lazy(queues: Sequence[MessageQueue], members: Sequence[str]) -> Any:
        return {member: iter(queues[n::2]) for n, member in enumerate(members)}

    shares = validated_assignment(QUEUES, ["a", "b"], lazy)
    for _ in range(2):
        assert {member: list(share) for member, share in shares.items()} == {
            "a": QUEUES[::2],
            "b": QUEUES[1::2],
        }
    one = validated_assignment(QUEUES, ["a"], lambda queues, _: {"a": set(queues)})  # type: ignore[dict-item]
    assert sorted(one["a"]) == QUEUES
    with pytest.raises(UsageError, match="t@b:0 is given to 'a' and to 'b'"):
        validated_assignment(QUEUES, ["a", "b"], everything_to_everybody)


def everything_to_everybody(queues: Sequence[MessageQueue], members: Sequence[str]) -> Any:
    return {member: iter(queues) for member in members}


def test_a_share_that_raises_when_it_is_read_is_refused_with_its_reason() -> None:
    class UnreadableShare(list[MessageQueue]):
        def __iter__(self) -> Any:
            raise KeyError("rack")

    def lazy() -> Any:
        yield from UnreadableShare()

    rotten: list[Any] = [UnreadableShare(), lazy()]
    for share in rotten:
        with pytest.raises(UsageError, match=r"the strategy failed: KeyError\('rack'\)"):
            validated_assignment(QUEUES, ["a"], lambda _queues, _members: {"a": share})  # noqa: B023


def test_a_strategy_that_raises_is_refused_with_its_reason() -> None:
    def broken(_queues: Sequence[MessageQueue], _members: Sequence[str]) -> Any:
        raise KeyError("rack")

    def said(_queues: Sequence[MessageQueue], _members: Sequence[str]) -> Any:
        raise UsageError("m is in no room")

    with pytest.raises(UsageError, match=r"the strategy failed: KeyError\('rack'\)"):
        validated_assignment(QUEUES, ["a"], broken)
    with pytest.raises(UsageError, match="m is in no room"):
        validated_assignment(QUEUES, ["a"], said)
