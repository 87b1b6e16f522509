"""Elections, with the cases of Apache's ReplicasInfoManagerTest among them."""

from typing import Any

import pytest
from msgspec.structs import replace
from tests.rules.election.conftest import group_of, led

from roquet.rules.election.elect import (
    PRIORITY_DEFAULT,
    SILENT_MS,
    Candidate,
    ElectionFacts,
    ElectionRequest,
    ElectionResult,
    elect,
    election_reason,
    needs_election,
)
from roquet.rules.election.group import RefusalCode, ReplicaGroup
from roquet.rules.election.lease import MasterLease

TRIO = led(group_of(1, 2, 3), 1, 4, 1, 2, 3)
SAME = Candidate(epoch=4, end=900)


def facts(live: dict[int, Candidate], lease: MasterLease | None = None) -> ElectionFacts:
    return ElectionFacts(live=live, lease=lease, now_ms=100)


def asked(group: ReplicaGroup, live: dict[int, Candidate], **request: Any) -> ElectionResult:
    return elect(group, ElectionRequest(**request), facts(live))


def refused(result: ElectionResult) -> RefusalCode:
    assert result.refusal is not None
    return result.refusal.code


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (ElectionRequest(), "broker 1 led before, and is not heard of"),
        (ElectionRequest(asker=2), "broker 1 led before, and is not heard of"),
        (ElectionRequest(asker=2, designated=True), "an operator named it"),
        (ElectionRequest(asker=2, restarted=True), "broker 1 led before, and 2 was started again"),
        (ElectionRequest(asker=1, restarted=True), "it led before, and asked for another epoch"),
    ],
)
def test_an_election_has_a_reason(request_: ElectionRequest, reason: str) -> None:
    assert election_reason(TRIO, request_) == reason
    assert election_reason(replace(TRIO, master=None), ElectionRequest()) == "nobody led"


def test_the_first_to_ask_is_the_first_master() -> None:
    result = asked(group_of(1, 2), {}, asker=2)
    assert result == ElectionResult(
        group=replace(
            group_of(1, 2), master=2, master_epoch=1, in_sync=frozenset({2}), set_version=1
        )
    )


def test_the_first_master_is_registered_and_asks_for_itself() -> None:
    group = group_of(1)
    stranger = asked(group, {}, asker=9)
    assert (stranger.group, refused(stranger)) == (group, RefusalCode.BROKER_NEED_TO_BE_REGISTERED)
    nobody = asked(group, {1: SAME})
    assert (nobody.group, refused(nobody)) == (group, RefusalCode.MASTER_NOT_AVAILABLE)


def test_the_first_master_is_alive_if_an_operator_names_it() -> None:
    group = group_of(1, 2)
    assert refused(asked(group, {}, asker=1, designated=True)) == RefusalCode.ELECT_MASTER_FAILED
    fresh = replace(SAME, epoch=0, end=0)
    assert asked(group, {1: fresh}, asker=1, designated=True).group.master == 1


def test_a_broker_of_a_later_epoch_that_was_not_heard_of_is_not_elected_in_an_earlier_one() -> None:
    result = asked(group_of(1, 2), {}, asker=1, epoch=4)
    assert result.refusal is not None
    assert "in epoch 4, the controller's state in epoch 0" in result.refusal.remark


def test_a_master_that_is_alive_stays() -> None:
    for request in ({}, {"asker": 2}, {"asker": 1, "designated": True}):
        result = asked(TRIO, {1: SAME, 2: replace(SAME, end=999)}, **request)
        assert (result.group, refused(result)) == (TRIO, RefusalCode.MASTER_STILL_EXIST)


def test_a_winner_leads_in_a_new_epoch_with_a_set_of_its_own() -> None:
    result = asked(TRIO, {2: SAME, 3: replace(SAME, end=800)}, asker=3)
    assert result == ElectionResult(
        group=replace(TRIO, master=2, master_epoch=5, in_sync=frozenset({2}), set_version=6)
    )


@pytest.mark.parametrize(
    ("second", "third", "winner"),
    [
        (Candidate(epoch=4, end=900), Candidate(epoch=3, end=999), 2),
        (Candidate(epoch=3, end=999), Candidate(epoch=4, end=900), 3),
        (Candidate(epoch=4, end=900), Candidate(epoch=4, end=901), 3),
        (Candidate(epoch=4, end=3 << 30), Candidate(epoch=4, end=0), 2),
        (Candidate(epoch=4, end=900, priority=2), Candidate(epoch=4, end=900, priority=1), 3),
        (Candidate(epoch=4, end=900), Candidate(epoch=4, end=900, priority=PRIORITY_DEFAULT), 2),
    ],
)
def test_the_best_is_elected_by_epoch_end_and_priority(
    second: Candidate, third: Candidate, winner: int
) -> None:
    assert asked(TRIO, {2: second, 3: third}).group.master == winner


def test_an_operator_names_the_one_to_elect() -> None:
    live = {1: SAME, 2: SAME, 3: SAME}
    assert asked(TRIO, live, asker=3, designated=True).group.master == 3
    outside = asked(led(TRIO, 1, 4, 1, 2), live, asker=3, designated=True)
    assert refused(outside) == RefusalCode.ELECT_MASTER_FAILED


def test_nobody_outside_the_set_is_elected_unless_asked_for() -> None:
    alone = led(TRIO, 1, 4)
    live = {2: SAME, 3: replace(SAME, end=950)}
    by_broker = asked(alone, live, asker=2)
    assert (by_broker.group, refused(by_broker)) == (alone, RefusalCode.ELECT_MASTER_FAILED)
    unclean = asked(alone, live, asker=2, unclean=True)
    assert (unclean.group.master, unclean.is_unclean, unclean.refusal) == (3, True, None)
    named = asked(alone, live, asker=2, designated=True, unclean=True)
    assert (named.group.master, named.is_unclean) == (2, True)


QUICK = replace(SAME, logs_needed=2)
"""A member of a group whose master waits for one other log."""


def test_a_member_that_may_lack_acknowledged_messages_is_not_elected() -> None:
    alone = asked(TRIO, {3: QUICK})
    assert (alone.group, refused(alone), alone.missing) == (
        TRIO, RefusalCode.ELECT_MASTER_FAILED, 1
    )  # fmt: skip
    assert alone.retry_ms == 100, "the others may come at any moment"
    assert alone.refusal is not None
    assert "1 more of the set [1, 2, 3] must be alive" in alone.refusal.remark
    both = asked(TRIO, {2: replace(QUICK, end=901), 3: QUICK})
    assert (both.group.master, both.missing, both.is_unclean) == (2, 0, False)


@pytest.mark.parametrize(
    ("size", "needed", "alive"), [(3, 2, 2), (3, 3, 1), (3, 1, 1), (2, 2, 1), (2, 1, 1)]
)
def test_members_that_surely_include_one_with_each_message_elect(
    size: int, needed: int, alive: int
) -> None:
    ids = range(1, size + 1)
    group = led(group_of(*ids), 1, 4, *ids)
    live = {one: replace(SAME, logs_needed=needed) for one in [*ids][-alive:]}
    assert asked(group, live).refusal is None
    live.pop(size)
    if live:
        assert asked(group, live).missing == 1, "one member fewer may lack some"


def test_an_operator_who_accepts_losses_elects_where_too_few_members_are_left() -> None:
    for request in ({}, {"asker": 3, "designated": True}):
        result = asked(TRIO, {3: QUICK}, unclean=True, **request)
        assert (result.group.master, result.is_unclean) == (3, True)


def test_a_named_broker_waits_for_as_many_members_as_any_other() -> None:
    named = {"asker": 3, "designated": True}
    alone = asked(TRIO, {3: QUICK}, **named)
    assert (alone.group, refused(alone), alone.missing, alone.retry_ms) == (
        TRIO, RefusalCode.ELECT_MASTER_FAILED, 1, 100
    )  # fmt: skip
    assert alone.refusal is not None
    assert "an operator elects one as unclean" in alone.refusal.remark
    both = asked(TRIO, {2: QUICK, 3: QUICK}, **named)
    assert (both.group.master, both.is_unclean) == (3, False)


def test_the_stored_number_of_logs_counts_whatever_living_members_report() -> None:
    two_of_three = replace(TRIO, logs_needed=2)
    for said in (None, 1, 3):
        assert asked(two_of_three, {3: replace(SAME, logs_needed=said)}).missing == 1
    after = asked(two_of_three, {2: SAME, 3: SAME}).group
    assert (after.master, after.logs_needed) == (2, None), "the winner has everything"


ELECT_THREE = ElectionRequest(asker=3, designated=True)


def test_a_named_broker_that_lacks_messages_of_others_is_elected_once_it_has_them() -> None:
    lease = MasterLease(holder=1, address="h:1", until_ms=50)
    full, less = replace(SAME, heard_ms=51), replace(SAME, end=800, heard_ms=51)
    unheard = elect(TRIO, ELECT_THREE, facts({1: replace(full, heard_ms=49), 3: full}, lease))
    assert (refused(unheard), unheard.retry_ms) == (RefusalCode.ELECT_MASTER_FAILED, 50)
    behind = elect(TRIO, ELECT_THREE, facts({1: full, 2: less, 3: less}, lease))
    assert (behind.group, behind.retry_ms) == (TRIO, 100)
    assert behind.refusal is not None
    assert "broker 3 lacks messages that broker 1 has" in behind.refusal.remark
    unclean = replace(ELECT_THREE, unclean=True)
    lossy = elect(TRIO, unclean, facts({1: full, 3: less}, lease))
    assert (lossy.group.master, lossy.is_unclean) == (3, True)
    assert not elect(TRIO, unclean, facts({1: full, 3: full}, lease)).is_unclean
    assert elect(TRIO, ELECT_THREE, facts({1: full, 2: less, 3: full}, lease)).group.master == 3


def test_a_named_broker_is_compared_with_nobody_where_all_of_the_set_has_everything() -> None:
    live = {1: SAME, 3: replace(SAME, end=800)}
    for_all = MasterLease(holder=1, address="h:1", until_ms=50, waits_for_all=True)
    assumed = MasterLease(holder=None, until_ms=50)
    for lease in (for_all, assumed, None):
        assert elect(TRIO, ELECT_THREE, facts(live, lease)).group.master == 3
    two_of_three = replace(TRIO, logs_needed=2)
    for lease in (assumed, None):
        assert refused(elect(two_of_three, ELECT_THREE, facts(live, lease)))


def test_an_unclean_election_prefers_the_set() -> None:
    result = asked(led(TRIO, 1, 4, 1, 2), {2: SAME, 3: replace(SAME, end=999)}, unclean=True)
    assert (result.group.master, result.is_unclean) == (2, False)


def test_an_unclean_election_passes_over_who_only_learns_unless_an_operator_names_it() -> None:
    alone = led(TRIO, 1, 4)
    learner = replace(SAME, end=950, is_learner=True)
    unclean = asked(alone, {2: SAME, 3: learner}, unclean=True)
    assert (unclean.group.master, unclean.is_unclean) == (2, True)
    nobody = asked(alone, {3: learner}, unclean=True)
    assert refused(nobody) == RefusalCode.MASTER_NOT_AVAILABLE
    named = asked(alone, {2: SAME, 3: learner}, asker=3, designated=True, unclean=True)
    assert (named.group.master, named.is_unclean) == (3, True)


def test_a_member_of_the_set_that_only_learns_from_now_on_may_be_elected() -> None:
    result = asked(led(TRIO, 1, 4, 1, 2), {2: replace(SAME, is_learner=True), 3: SAME})
    assert (result.group.master, result.is_unclean) == (2, False)


def test_a_group_whose_members_are_all_dead_has_no_master() -> None:
    alone = led(TRIO, 1, 4)
    result = asked(alone, {2: SAME})
    assert refused(result) == RefusalCode.MASTER_NOT_AVAILABLE
    assert result.group == replace(alone, master=None, master_epoch=5), "the set stays"
    again = asked(result.group, {2: SAME}, unclean=False)
    assert again.group == result.group
    nobody = asked(result.group, {}, unclean=True)
    assert (nobody.is_unclean, refused(nobody)) == (False, RefusalCode.MASTER_NOT_AVAILABLE)
    back = asked(result.group, {1: SAME, 2: SAME}, asker=1).group
    assert (back.master, back.master_epoch) == (1, 6)


def test_a_master_that_holds_a_lease_is_not_removed_without_a_successor() -> None:
    alone, lease = led(TRIO, 1, 4), MasterLease(holder=None, until_ms=101)
    early = elect(alone, ElectionRequest(), facts({2: SAME}, lease))
    assert (early.group, refused(early)) == (alone, RefusalCode.ELECT_MASTER_FAILED)
    assert early.retry_ms == 101
    over = elect(alone, ElectionRequest(), facts({2: SAME}, replace(lease, until_ms=100)))
    assert (over.group.master, over.group.master_epoch) == (None, 5)


def test_nobody_is_elected_while_the_old_master_may_acknowledge() -> None:
    lease = MasterLease(holder=1, address="h:1", until_ms=101)
    live = {2: SAME, 3: SAME}
    early = elect(TRIO, ElectionRequest(), facts(live, lease))
    assert (early.group, refused(early)) == (TRIO, RefusalCode.ELECT_MASTER_FAILED)
    over = elect(TRIO, ElectionRequest(), facts(live, replace(lease, until_ms=100)))
    assert over.group.master == 2
    fenced = elect(TRIO, ElectionRequest(), facts(live, replace(lease, waits_for_all=True)))
    assert fenced.group.master == 2


def test_a_restarted_master_stays_only_if_nobody_in_the_set_has_more() -> None:
    request = {"asker": 1, "restarted": True}
    lost = asked(TRIO, {1: replace(SAME, end=899), 2: SAME}, **request)
    assert lost.group.master == 2
    equal = asked(TRIO, {1: SAME, 2: SAME}, **request)
    assert (equal.group.master, equal.group.master_epoch, equal.refusal) == (1, 5, None)


def test_the_restart_of_another_broker_leaves_the_master() -> None:
    result = asked(TRIO, {1: SAME, 2: replace(SAME, end=999)}, asker=2, restarted=True)
    assert refused(result) == RefusalCode.MASTER_STILL_EXIST


def test_a_group_needs_an_election_when_its_master_alone_is_dead() -> None:
    assert needs_election(TRIO, {2})
    assert not needs_election(TRIO, {1, 2})
    assert not needs_election(TRIO, {9}), "nobody of the group is alive"
    assert not needs_election(replace(TRIO, master=None), {2})


def test_nobody_is_elected_while_brokers_are_in_a_later_epoch_than_the_state() -> None:
    for group in (TRIO, group_of(1)):
        request = ElectionRequest(asker=1)
        later = ElectionFacts(live={2: SAME}, lease=None, now_ms=0, epoch_known=5)
        result = elect(group, request, later)
        assert (result.group, refused(result)) == (group, RefusalCode.ELECT_MASTER_FAILED)
        assert result.retry_ms is None
    same = ElectionFacts(live={2: SAME}, lease=None, now_ms=0, epoch_known=4)
    assert elect(TRIO, ElectionRequest(), same).group.master == 2


def test_an_election_that_waits_for_the_lease_says_for_how_long() -> None:
    lease = MasterLease(holder=1, address="h:1", until_ms=500)
    early = elect(TRIO, ElectionRequest(), facts({2: SAME}, lease))
    assert (early.group, early.retry_ms) == (TRIO, 500)


def test_members_are_compared_by_what_they_said_after_the_lease() -> None:
    lease = MasterLease(holder=1, address="h:1", until_ms=50)
    old, new = replace(SAME, heard_ms=49), replace(SAME, end=800, heard_ms=50)
    waiting = elect(TRIO, ElectionRequest(), facts({2: old, 3: new}, lease))
    assert (waiting.group, waiting.retry_ms) == (TRIO, 50)
    known = elect(TRIO, ElectionRequest(), facts({2: replace(old, heard_ms=51), 3: new}, lease))
    assert known.group.master == 2
    for_all = replace(lease, waits_for_all=True)
    assert elect(TRIO, ElectionRequest(), facts({2: old, 3: new}, for_all)).group.master == 2


def test_a_silent_member_is_elected_last_where_any_of_them_has_everything() -> None:
    lease = MasterLease(holder=1, address="h:1", until_ms=50, waits_for_all=True)
    silent = Candidate(epoch=4, end=900, heard_ms=100)
    heard = Candidate(epoch=4, end=800, heard_ms=101)
    for given, live, winner in (
        (lease, {2: silent, 3: heard}, 3),
        (lease, {2: silent}, 2),
        (lease, {2: silent, 3: replace(heard, heard_ms=None)}, 3),
        (replace(lease, waits_for_all=False), {2: silent, 3: heard}, 2),
        (None, {2: silent, 3: heard}, 2),
    ):
        now = ElectionFacts(live=live, lease=given, now_ms=100 + SILENT_MS)
        assert elect(TRIO, ElectionRequest(), now).group.master == winner
    outside = ElectionFacts(live={2: silent, 3: heard}, lease=lease, now_ms=100 + SILENT_MS)
    unclean = elect(led(TRIO, 1, 4), ElectionRequest(unclean=True), outside)
    assert unclean.group.master == 2, "outside the set the longest log counts"


def test_a_group_whose_brokers_were_removed_goes_on_in_the_next_epoch() -> None:
    group = replace(group_of(3), master_epoch=4, set_version=6)
    result = asked(group, {}, asker=3)
    assert (result.group.master, result.group.master_epoch) == (3, 5)


def test_a_removed_master_that_may_still_acknowledge_is_waited_for() -> None:
    group = replace(group_of(3), master_epoch=4, set_version=6)
    lease = MasterLease(holder=1, address="h:1", until_ms=500)
    early = elect(group, ElectionRequest(asker=3), facts({}, lease))
    assert (early.group, early.retry_ms) == (group, 500)
