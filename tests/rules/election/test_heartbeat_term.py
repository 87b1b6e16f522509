"""How long a master leads under a controller that grants no leases."""

from hypothesis import given
from hypothesis import strategies as st

from roquet.rules.election.heartbeat_term import HEARTBEAT_TIMEOUT_MS, term_by_heartbeat
from roquet.rules.election.lease import LeaseTerms, MasterTerm


def test_a_term_ends_before_the_controller_misses_heartbeats() -> None:
    term = term_by_heartbeat(3, 1_000, HEARTBEAT_TIMEOUT_MS, LeaseTerms(drift_per_mille=10))
    assert term == MasterTerm(epoch=3, until_ms=10_311)
    assert term.may_acknowledge(3, 10_310)
    assert not term.may_acknowledge(3, 10_311)


def test_a_time_out_that_is_too_short_gives_no_term_at_all() -> None:
    term = term_by_heartbeat(3, 1_000, 400, LeaseTerms())
    assert not term.may_acknowledge(3, 1_000)


@given(timeout_ms=st.integers(0, 10**6), drift=st.integers(0, 100), delay_ms=st.integers(0, 10**4))
def test_a_slow_clock_does_not_outlast_the_time_out_on_a_fast_one(
    timeout_ms: int, drift: int, delay_ms: int
) -> None:
    term = term_by_heartbeat(1, 0, timeout_ms, LeaseTerms(drift_per_mille=drift))
    true_ms = term.until_ms * 1_000 / (1_000 - drift)  # on the slowest clock of a master
    elected_ms = (delay_ms + timeout_ms) * 1_000 / (1_000 + drift)  # on the fastest controller's
    assert true_ms <= elected_ms
