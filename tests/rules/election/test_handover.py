from roquet.rules.election.handover import MemberStanding, bytes_lost, may_leave, stand_ins


def member(
    broker_id: int, log_end: int = -1, *, is_in_sync: bool = True, is_alive: bool = True
) -> MemberStanding:
    return MemberStanding(
        broker_id=broker_id, is_in_sync=is_in_sync, is_alive=is_alive, log_end=log_end
    )


GROUP = (
    member(1, 900),
    member(2, 800),
    member(3, 850),
    member(4, 850),
    member(5, 950, is_in_sync=False),
    member(6, 950, is_alive=False),
)


def test_the_longest_log_of_the_set_stands_in_and_then_the_lowest_id() -> None:
    assert [one.broker_id for one in stand_ins(GROUP, 1)] == [3, 4, 2]
    assert [one.broker_id for one in stand_ins(GROUP, 3)] == [1, 4, 2]
    assert stand_ins(GROUP[:1], 1) == []


def test_a_broker_may_leave_if_enough_others_are_in_sync() -> None:
    assert may_leave(GROUP, 1, 3)
    assert not may_leave(GROUP, 1, 4)
    assert may_leave(GROUP, 5, 4)


def test_the_last_of_a_group_never_leaves_it() -> None:
    assert not may_leave(GROUP[:1], 1, 0)


def test_lost_is_what_the_longest_log_has_and_the_winner_has_not() -> None:
    assert bytes_lost(GROUP, 2) == 150
    assert bytes_lost(GROUP, 5) == 0
    assert bytes_lost(GROUP[:2], 1) == 0
    assert bytes_lost((*GROUP, member(7)), 7) is None
    assert bytes_lost((member(1, 5), member(2)), 1) is None
