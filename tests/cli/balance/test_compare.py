"""Strategies' answers side by side."""

import pytest

from roquet.cli.balance.compare import (
    STRATEGY_FUNCTIONS,
    StrategyResult,
    compare,
    json_fields,
    owners_in_order,
    strategy_names,
)
from roquet.cli.balance.situation import MemberChange, Situation, build_situation
from roquet.model.errors import UsageError
from roquet.rules.allocate import BROKER_DECIDED, STRATEGIES


def only(situation: Situation, name: str) -> StrategyResult:
    (result,) = compare(situation, [name])
    return result


def test_when_a_fourth_joins_two_moves_are_the_least() -> None:
    results = {
        r.name: r for r in compare(build_situation(then=MemberChange.JOIN), strategy_names("all"))
    }
    assert {name: len(results[name].moved) for name in ("AVG", "AVG_BY_CIRCLE", "STICKY")} == {
        "AVG": 5,
        "AVG_BY_CIRCLE": 5,
        "STICKY": 2,
    }
    assert results["STICKY"].fewest == results["AVG"].fewest == 2
    assert results["STICKY"].is_least
    assert not results["AVG"].is_least


@pytest.mark.parametrize("name", STRATEGY_FUNCTIONS)
@pytest.mark.parametrize("then", [None, *MemberChange])
def test_every_strategy_gives_each_queue_an_owner_or_lists_it_without_one(
    name: str, then: MemberChange | None
) -> None:
    situation = build_situation(
        queues=11, brokers=3, members=4, then=then, lag=",".join("31415926535")
    )
    result = only(situation, name)
    owned = [queue for share in result.after.values() for queue in share]
    assert sorted([*owned, *result.unowned]) == sorted(situation.queues)
    assert set(result.after) == set(situation.remaining)
    assert bool(result.unowned) == (
        name == "CONFIG" and then in (MemberChange.LEAVE, MemberChange.KILL)
    )


def test_queues_without_an_owner_make_an_assignment_uneven() -> None:
    result = only(build_situation(members=2, then=MemberChange.LEAVE), "CONFIG")
    assert [queue.queue_id for queue in result.unowned] == [4, 5, 6, 7]
    assert not result.is_even
    situation = build_situation(members=2, then=MemberChange.LEAVE)
    assert [owner for _, owner in owners_in_order(situation, result.after)] == 4 * [0] + 4 * [None]


def test_rooms_keep_their_queues() -> None:
    situation = build_situation(brokers=2, members=4)
    for member, share in only(situation, "MACHINE_ROOM_NEARBY-AVG").before.items():
        assert {q.broker_name.partition("@")[0] for q in share} == {
            situation.room_of_member(member)
        }


def test_waiting_messages_are_weighed() -> None:
    result = only(build_situation(queues=4, members=2, lag="90,10,50,40"), "LAG_WEIGHTED")
    assert (result.waiting.least, result.waiting.most) == (90, 100)


def test_names_are_found_in_any_case() -> None:
    assert strategy_names("sticky") == ["STICKY"]
    assert strategy_names("machine_room_nearby-consistent_hash") == [
        "MACHINE_ROOM_NEARBY-CONSISTENT_HASH"
    ]
    assert {*STRATEGIES, *BROKER_DECIDED, "CONFIG", "MACHINE_ROOM"} < set(strategy_names("ALL"))
    with pytest.raises(UsageError, match="no 'AVERAGE_BY_CIRCLE'; did you mean 'AVG_BY_CIRCLE'"):
        strategy_names("AVERAGE_BY_CIRCLE")


def test_json_has_every_name() -> None:
    situation = build_situation(queues=3, members=2, then=MemberChange.JOIN, lag="1,2,3")
    fields = json_fields(situation, compare(situation, ["AVG"]))
    assert fields["then"] == {"what": "join", "who": "c3"}
    assert fields["lag"]["Orders@room1@broker-a:2"] == 3
    (average,) = fields["strategies"]
    assert average["shares"]["c1"] == ["Orders@room1@broker-a:0", "Orders@room1@broker-a:1"]
    assert average["shares_after"]["c3"] == ["Orders@room1@broker-a:2"]
    assert (average["moves"], average["least_moves"]) == (2, 1)
    assert average["moved"] == ["Orders@room1@broker-a:1", "Orders@room1@broker-a:2"]
    assert (average["least_waiting"], average["most_waiting"]) == (1, 3)


def test_json_of_a_quiet_group_has_no_moves() -> None:
    situation = build_situation()
    fields = json_fields(situation, compare(situation, ["AVG"]))
    assert fields["then"] is None
    assert set(fields["strategies"][0]) == {"name", "shares", "smallest", "largest", "unowned"}
