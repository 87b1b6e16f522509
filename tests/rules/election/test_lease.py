"""Leases of masters, on clocks that are not the same."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.rules.election.conftest import group_of, led

from roquet.rules.election import lease as rules
from roquet.rules.election.group import Refusal, RefusalCode, RegisteredReplica
from roquet.rules.election.lease import (
    LeaseRequest,
    LogsNeeded,
    StricterRule,
    logs_promised,
    next_logs_needed,
)

TERMS = rules.LeaseTerms(length_ms=2_000, drift_per_mille=10)
TRIO = led(group_of(1, 2, 3), 1, 4, 1, 2)
ASKED = rules.LeaseRequest(broker_id=1, address="h:1", epoch=4)


def granted(now_ms: int, lease: rules.MasterLease | None = None) -> rules.MasterLease:
    result = rules.grant_lease(TRIO, lease, ASKED, now_ms, TERMS)
    assert isinstance(result, rules.MasterLease)
    return result


def test_a_controller_waits_longer_than_a_master_goes_on() -> None:
    assert TERMS.wait_ms == 2_042
    assert rules.LeaseTerms(length_ms=1_000, drift_per_mille=0).wait_ms == 1_001
    assert granted(100) == rules.MasterLease(holder=1, address="h:1", until_ms=2_142)


def test_a_master_acknowledges_in_its_epoch_until_its_term_ends() -> None:
    term = rules.granted_term(4, 500, TERMS)
    assert term.may_acknowledge(4, 2_499)
    assert not term.may_acknowledge(4, 2_500)
    assert not term.may_acknowledge(5, 600)


@given(
    st.integers(1, 60_000),
    st.integers(0, 100),
    st.floats(-1, 1),
    st.floats(-1, 1),
    st.integers(0, 5_000),
    st.integers(0, 10**9),
    st.integers(0, 10**9),
)
def test_the_master_has_stopped_when_the_controllers_wait_is_over(
    length_ms: int,
    drift: int,
    master_drift: float,
    controller_drift: float,
    delay_ms: int,
    master_start: int,
    controller_start: int,
) -> None:
    """Times in ms of true time; each clock shows its start and the time since, at its own rate."""
    terms = rules.LeaseTerms(length_ms=length_ms, drift_per_mille=drift)
    master_rate = 1 + master_drift * drift / 1_000
    controller_rate = 1 + controller_drift * drift / 1_000
    term = rules.granted_term(4, master_start, terms)
    at_controller = int(controller_start + delay_ms * controller_rate)
    lease = rules.grant_lease(TRIO, None, ASKED, at_controller, terms)
    assert isinstance(lease, rules.MasterLease)
    may_elect_at = (lease.until_ms - controller_start) / controller_rate
    assert not term.may_acknowledge(4, int(master_start + may_elect_at * master_rate + 1e-6))


def test_a_lease_is_the_masters_of_the_current_epoch() -> None:
    for asked, code in [
        (rules.LeaseRequest(broker_id=2, address="h:2", epoch=4), RefusalCode.INVALID_MASTER),
        (rules.LeaseRequest(broker_id=1, address="h:9", epoch=4), RefusalCode.INVALID_MASTER),
        (rules.LeaseRequest(broker_id=1, address="h:1", epoch=3), RefusalCode.FENCED_MASTER_EPOCH),
    ]:
        refusal = rules.grant_lease(TRIO, None, asked, 100, TERMS)
        assert isinstance(refusal, Refusal)
        assert refusal.code == code


def test_a_longer_lease_does_not_end_earlier_than_the_one_before() -> None:
    assert granted(200, granted(100)).until_ms == 2_242
    assert granted(100, rules.MasterLease(holder=2, until_ms=9_000)).until_ms == 9_000


def test_another_master_is_elected_once_the_lease_is_over() -> None:
    lease = granted(100)
    assert not rules.may_replace_master(TRIO, lease, 2, 2_141)
    assert rules.may_replace_master(TRIO, lease, 2, 2_142)
    assert rules.may_replace_master(TRIO, lease, 1, 101), "its holder knows of itself"
    assert rules.may_replace_master(TRIO, None, 2, 0), "Apache's masters have no lease"


def test_a_member_that_the_master_waits_for_is_elected_at_once() -> None:
    result = rules.grant_lease(TRIO, None, replace(ASKED, waits_for_all=True), 100, TERMS)
    assert isinstance(result, rules.MasterLease)
    assert rules.may_replace_master(TRIO, result, 2, 101)
    assert not rules.may_replace_master(TRIO, result, 3, 101), "the master does not wait for it"
    assert rules.may_replace_master(TRIO, result, 3, 2_142)


def test_a_controller_that_begins_to_lead_assumes_a_lease() -> None:
    lease = rules.assumed_lease(100, TERMS)
    for winner in (1, 2):
        assert not rules.may_replace_master(TRIO, lease, winner, 2_141)
        assert rules.may_replace_master(TRIO, lease, winner, 2_142)


@pytest.mark.parametrize(("broker_id", "until_ms"), [(1, 150), (2, 2_142)])
def test_only_its_holder_releases_a_lease(broker_id: int, until_ms: int) -> None:
    assert rules.released_lease(granted(100), broker_id, "h:1", 150).until_ms == until_ms
    assert rules.released_lease(granted(100), 1, "h:1", 9_999).until_ms == 2_142
    assert rules.released_lease(granted(100), 1, "h:9", 150).until_ms == 2_142, (
        "a copy is another one"
    )


@pytest.mark.parametrize("waits_for_all", [True, False])
def test_a_master_that_moved_is_elected_once_the_lease_of_its_former_process_is_over(
    waits_for_all: bool,
) -> None:
    lease = rules.grant_lease(TRIO, None, replace(ASKED, waits_for_all=waits_for_all), 100, TERMS)
    assert isinstance(lease, rules.MasterLease)
    replicas = {**TRIO.replicas, 1: RegisteredReplica("h:9", "h:1;17")}
    moved = replace(TRIO, replicas=replicas, master=None, master_epoch=5)
    assert not rules.may_replace_master(moved, lease, 1, 2_141), (
        "it may lack what the former one has"
    )
    assert rules.may_replace_master(moved, lease, 1, 2_142)


def test_a_term_ends_before_the_controller_misses_heartbeats() -> None:
    term = rules.term_by_heartbeat(3, 1_000, 10_000, rules.LeaseTerms(drift_per_mille=10))
    assert term == rules.MasterTerm(epoch=3, until_ms=10_311)
    assert term.may_acknowledge(3, 10_310)
    assert not term.may_acknowledge(3, 10_311)


def test_a_time_out_that_is_too_short_gives_no_term_at_all() -> None:
    term = rules.term_by_heartbeat(3, 1_000, 400, rules.LeaseTerms())
    assert not term.may_acknowledge(3, 1_000)


@given(timeout_ms=st.integers(0, 10**6), drift=st.integers(0, 100), delay_ms=st.integers(0, 10**4))
def test_a_slow_clock_does_not_outlast_the_time_out_on_a_fast_one(
    timeout_ms: int, drift: int, delay_ms: int
) -> None:
    term = rules.term_by_heartbeat(1, 0, timeout_ms, rules.LeaseTerms(drift_per_mille=drift))
    true_ms = term.until_ms * 1_000 / (1_000 - drift)  # on the slowest clock of a master
    elected_ms = (delay_ms + timeout_ms) * 1_000 / (1_000 + drift)  # on the fastest controller's
    assert true_ms <= elected_ms


TWO = LeaseRequest(broker_id=1, address="h:1", epoch=4, logs_needed=2, end=900, confirmed=800)
"""A master that waits for one other log; not all of the set have what it has."""

THREE = replace(TWO, logs_needed=3)
WHOLE_SET = replace(TWO, logs_needed=None, waits_for_all=True)
ALONE = replace(TWO, logs_needed=1)


def test_fewer_logs_count_at_once() -> None:
    assert next_logs_needed(None, TWO, None) == LogsNeeded(stored=2)
    assert next_logs_needed(3, TWO, None) == LogsNeeded(stored=2)
    assert next_logs_needed(2, TWO, None) == LogsNeeded(stored=2)


def test_nothing_is_stored_where_all_of_the_set_is_waited_for_or_nothing_is_promised() -> None:
    for request in (WHOLE_SET, ALONE, replace(TWO, waits_for_all=True)):
        assert next_logs_needed(None, request, None) == LogsNeeded(stored=None)


def test_another_rule_waits_until_the_set_has_what_was_acknowledged_before() -> None:
    for request in (THREE, WHOLE_SET, ALONE):
        said = None if request is not THREE else 3
        first = next_logs_needed(2, request, None)
        assert first == LogsNeeded(
            stored=2, waiting=StricterRule(epoch=4, logs_needed=said, end=900)
        )
        later = replace(request, end=1_500, confirmed=899)
        assert next_logs_needed(2, later, first.waiting) == first
        assert next_logs_needed(2, replace(later, confirmed=900), first.waiting) == LogsNeeded(
            stored=said
        )


def test_a_rule_that_changes_again_waits_anew() -> None:
    waiting = StricterRule(epoch=4, logs_needed=3, end=100)
    assert next_logs_needed(2, WHOLE_SET, waiting).stored == 2
    assert next_logs_needed(2, replace(THREE, epoch=5), waiting).stored == 2
    assert next_logs_needed(2, TWO, waiting) == LogsNeeded(stored=2)


def test_what_is_stored_counts_more_than_what_living_members_report() -> None:
    group = group_of(1, 2, 3)
    assert logs_promised(replace(group, logs_needed=2), [None, 3, 1]) == 2
    assert logs_promised(group, [None, 3, 2]) == 2, "nothing is stored by an earlier version"
    assert logs_promised(group, [None]) == 1
