import pytest

from roquet.rules.replication import sync_state

ALONE = sync_state.SyncState(members=frozenset({1}), version=4)
TRIO = sync_state.SyncState(members=frozenset({1, 2, 3}), version=7)


def test_logs_are_in_sync_by_bytes_below_the_gap() -> None:
    assert sync_state.in_sync_count(1_000, [], 256) == 1
    assert sync_state.in_sync_count(1_000, [1_000, 745, 744, 0], 256) == 3


def test_old_and_new_members_acknowledge_until_the_result_is_known() -> None:
    growing = ALONE.propose(frozenset({1, 2}))
    assert growing.members == {1}
    assert growing.acknowledging == {1, 2}
    shrinking = TRIO.propose(frozenset({1}))
    assert shrinking.acknowledging == {1, 2, 3}, "nobody leaves before the controller agrees"
    assert TRIO.acknowledging == {1, 2, 3}
    assert [state.size_min for state in (growing, shrinking, TRIO)] == [1, 1, 3]


def test_one_change_is_asked_for_at_a_time() -> None:
    with pytest.raises(AssertionError, match="before the next"):
        ALONE.propose(frozenset({1, 2})).propose(frozenset({1, 3}))


def test_a_newer_set_of_the_controller_is_adopted() -> None:
    growing = ALONE.propose(frozenset({1, 2}))
    assert growing.adopt(frozenset({1, 2}), 5) == sync_state.SyncState(
        members=frozenset({1, 2}), version=5
    )
    assert growing.adopt(frozenset({1, 3}), 6).acknowledging == {1, 3}


def test_a_set_that_is_known_already_does_not_end_a_proposal() -> None:
    growing = ALONE.propose(frozenset({1, 2}))
    assert growing.adopt(frozenset({1}), 4) == growing
    assert growing.adopt(frozenset({1}), 3) == growing


def test_a_refused_proposal_leaves_the_set_as_it_was() -> None:
    assert ALONE.propose(frozenset({1, 2})).withdraw() == ALONE


def test_a_replica_has_caught_up_with_the_end_it_was_sent_or_with_the_end_of_now() -> None:
    last = sync_state.SentFrame(500, sent_ms=90)
    assert sync_state.caught_up_ms(499, 600, last, now_ms=100) is None
    assert sync_state.caught_up_ms(500, 600, last, now_ms=100) == 90
    assert sync_state.caught_up_ms(599, 600, last, now_ms=100) == 90
    assert sync_state.caught_up_ms(600, 600, last, now_ms=100) == 100


@pytest.mark.parametrize(
    ("report", "confirmed", "epoch_start", "joins"),
    [(500, 500, 400, True), (499, 500, 400, False), (500, 400, 501, False), (0, 0, 0, True)],
)
def test_a_replica_joins_that_has_all_that_is_confirmed_and_the_current_epoch(
    report: int, confirmed: int, epoch_start: int, *, joins: bool
) -> None:
    replica = sync_state.ReplicaReportFacts(broker_id=2, report=report)
    assert (
        sync_state.may_join(replica, ALONE, confirmed=confirmed, epoch_start=epoch_start) == joins
    )


def test_learners_and_members_do_not_join() -> None:
    learner = sync_state.ReplicaReportFacts(broker_id=2, report=9, is_learner=True)
    member = sync_state.ReplicaReportFacts(broker_id=2, report=9)
    assert not sync_state.may_join(learner, ALONE, confirmed=0, epoch_start=0)
    assert not sync_state.may_join(member, TRIO, confirmed=0, epoch_start=0)
    proposed = ALONE.propose(frozenset({1, 2}))
    assert not sync_state.may_join(member, proposed, confirmed=0, epoch_start=0)


def replaceable(state: sync_state.SyncState, reports: dict[int, int], needed: int = -1) -> bool:
    return sync_state.can_be_replaced(state, 1, reports, needed=needed, acknowledged=50)


def test_a_master_can_be_replaced_by_a_member_that_has_all_that_was_acknowledged() -> None:
    assert replaceable(TRIO, {2: 49, 3: 50})
    assert not replaceable(TRIO, {2: 49})
    assert not replaceable(TRIO, {})
    assert not replaceable(ALONE, {2: 50}), "the controller elects members alone"


def test_until_the_answer_a_member_before_and_after_the_change_has_to_be_there() -> None:
    assert not replaceable(ALONE.propose(frozenset({1, 2})), {2: 50})
    assert replaceable(TRIO.propose(frozenset({1, 2})), {2: 50})
    assert not replaceable(TRIO.propose(frozenset({1, 2})), {3: 50})


def test_where_two_logs_are_enough_all_but_one_are_compared_in_an_election() -> None:
    assert replaceable(TRIO, {2: 50, 3: 20}, needed=2)
    assert not replaceable(TRIO, {2: 50}, needed=2)
    assert replaceable(TRIO, {2: 50}, needed=3)


def test_members_that_have_not_caught_up_for_long_are_left_out() -> None:
    assert sync_state.members_in_time(TRIO, 1, {2: 85, 3: 84}, oldest_ms=85) == {1, 2}
    assert sync_state.members_in_time(TRIO, 1, {2: 85, 3: 85, 4: 99}, oldest_ms=85) == {1, 2, 3}
    assert sync_state.members_in_time(TRIO, 1, {2: 99}, oldest_ms=85) == {1, 2}, "3 never connected"
