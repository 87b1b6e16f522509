"""Decisions of strategies are those of the rules, compared with the fewest possible moves."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.lab import decisions
from roquet.lab.decisions import (
    ASSIGNMENTS,
    INDEX_STRATEGIES,
    NAMES,
    NOBODY,
    AssignmentDecision,
    AssignmentInput,
    GroupChange,
    decide,
    known_strategy,
)
from roquet.lab.scenario import LabScenario
from roquet.lab.timeline import topic_layout
from roquet.model.errors import UsageError
from roquet.rules.allocate import STRATEGIES, GroupAssignment, allocate
from roquet.rules.balance import rebalance_cost

LAYOUT = topic_layout(LabScenario(queues=8, brokers=2))
NOBODYS = (NOBODY,) * 8

addresses = st.lists(
    st.integers(0, 2**24).map(lambda n: f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}@room1-{n}"),
    min_size=2, max_size=9, unique=True,
).map(sorted)  # fmt: skip


def shares_of(members: Sequence[str], decision: AssignmentDecision) -> GroupAssignment:
    return {
        member: [q for q, p in zip(LAYOUT.queues, decision.owners, strict=True) if p == place]
        for place, member in enumerate(members)
    }


@given(addresses, st.sampled_from(sorted(STRATEGIES)))
def test_a_rule_is_answered_as_the_rule_answers(members: list[str], name: str) -> None:
    made = decide(name, LAYOUT, members, GroupChange(owners=NOBODYS))
    wanted = allocate(LAYOUT.queues, members, STRATEGIES[name])
    assert {m: list(s) for m, s in shares_of(members, made).items()} == {
        m: list(s) for m, s in wanted.items()
    }


@given(addresses, st.sampled_from(sorted(ASSIGNMENTS)), st.data())
def test_moves_and_the_least_of_them_are_those_of_the_rules(
    members: list[str], name: str, data: st.DataObject
) -> None:
    leaver = data.draw(st.integers(0, len(members) - 1))
    before = decide(name, LAYOUT, members, GroupChange(owners=NOBODYS))
    made = decide(name, LAYOUT, members, GroupChange(owners=before.owners, leaver=leaver))
    remaining = [m for m in members if m != members[leaver]]
    old, new = shares_of(members, before), shares_of(remaining, made)
    assert made.moved == len(rebalance_cost.moved_queues(old, new))
    assert made.least == rebalance_cost.fewest_moves(old, LAYOUT.queues, remaining)
    sizes = rebalance_cost.queue_spread(new)
    assert made.spread == sizes.most - sizes.least


@given(addresses, st.sampled_from(sorted(INDEX_STRATEGIES)), st.data())
def test_a_sticky_decision_equals_that_of_the_rule_for_the_same_names(
    members: list[str], name: str, data: st.DataObject
) -> None:
    newcomer = data.draw(st.integers(0, len(members) - 1))
    others = [m for m in members if m != members[newcomer]]
    owners = decide(name, LAYOUT, others, GroupChange(owners=NOBODYS)).owners
    change = GroupChange(owners=owners, newcomer=newcomer)
    made = decide(name, LAYOUT, members, change)
    had = {others[p]: [q] for q, p in zip(LAYOUT.queues, owners, strict=True)}
    for queue, place in zip(LAYOUT.queues, owners, strict=True):
        had[others[place]] = [*{*had[others[place]], queue}]
    situation = AssignmentInput(layout=LAYOUT, members=members, before=had)
    assert rebalance_cost.owner_map(shares_of(members, made)) == rebalance_cost.owner_map(
        ASSIGNMENTS[name](situation)
    )


def test_a_member_that_joins_a_hash_ring_moves_queues_only_to_itself() -> None:
    members = [f"10.0.0.{n}@room1-{n}" for n in range(6)]
    for name in ("CONSISTENT_HASH", "RENDEZVOUS"):
        owners = decide(name, LAYOUT, members[:5], GroupChange(owners=NOBODYS)).owners
        made = decide(name, LAYOUT, members, GroupChange(owners=owners, newcomer=5))
        assert made.strayed == 0
        assert made.moved == made.owners.count(5)


def test_avg_moves_queues_between_those_that_stay() -> None:
    members = [f"10.0.0.{n}@room1-{n}" for n in range(4)]
    owners = decide("AVG", LAYOUT, members[:3], GroupChange(owners=NOBODYS)).owners
    assert owners == (0, 0, 0, 1, 1, 1, 2, 2)
    made = decide("AVG", LAYOUT, members, GroupChange(owners=owners, newcomer=3))
    assert made.owners == (0, 0, 1, 1, 2, 2, 3, 3)
    assert (made.moved, made.least, made.strayed) == (5, 2, 3)


def test_more_members_than_queues_leave_some_idle() -> None:
    members = [f"10.0.0.{n:03}@room1-{n}" for n in range(11)]
    made = decide("AVG", LAYOUT, members, GroupChange(owners=NOBODYS))
    assert (made.idle, made.spread) == (3, 1)
    assert made.max_mean == pytest.approx(11 / 8)


def test_config_leaves_the_queues_of_a_gone_member_without_an_owner() -> None:
    members = ["10.0.0.1@room1-1", "10.0.0.2@room1-2"]
    owners = decide("CONFIG", LAYOUT, members, GroupChange(owners=NOBODYS)).owners
    made = decide("CONFIG", LAYOUT, members, GroupChange(owners=owners, leaver=0))
    assert (made.unowned, made.moved) == (4, 4)
    assert made.owners == (NOBODY,) * 4 + (0,) * 4
    # Nor does it begin anew once everybody has gone whose queues it knew.
    newcomer = decide("CONFIG", LAYOUT, members, GroupChange(owners=NOBODYS, newcomer=1))
    assert newcomer.unowned == 8


def test_a_rule_that_gives_a_queue_to_two_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def doubled(situation: AssignmentInput) -> GroupAssignment:
        return dict.fromkeys(situation.members, situation.layout.queues)

    monkeypatch.setattr(decisions, "ASSIGNMENTS", {"TWICE": doubled})
    with pytest.raises(UsageError, match="Orders@room1@broker-a:0 has 2 owners"):
        decide(
            "TWICE", LAYOUT, ["10.0.0.1@room1-1", "10.0.0.2@room1-2"], GroupChange(owners=NOBODYS)
        )


def test_names_are_known_in_any_case_and_a_wrong_one_is_answered_with_the_nearest() -> None:
    assert [known_strategy(name.lower()) for name in NAMES] == list(NAMES)
    with pytest.raises(UsageError, match=r"did you mean 'STICKY'.*There are AVG"):
        known_strategy("STIKY")
