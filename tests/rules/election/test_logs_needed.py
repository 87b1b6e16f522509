"""In how many logs acknowledged messages are, while settings change."""

from msgspec.structs import replace
from tests.rules.election.conftest import group_of

from roquet.rules.election.lease import LeaseRequest
from roquet.rules.election.logs_needed import (
    LogsNeeded,
    StricterRule,
    logs_promised,
    next_logs_needed,
)

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
