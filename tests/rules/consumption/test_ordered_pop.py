from roquet.rules.consumption import ordered_pop


def held(**fields: object) -> ordered_pop.OrderedPopLock:
    lock = ordered_pop.hold(None, [10, 11, 13], 1_000, 500, "a")
    for name, value in fields.items():
        setattr(lock, name, value)
    return lock


def test_a_queue_is_blocked_until_the_last_time_is_over() -> None:
    assert ordered_pop.blocked_until(None, None, 0) is None
    assert ordered_pop.blocked_until(held(), None, 1_200) == 1_500
    assert ordered_pop.blocked_until(held(), "b", 1_499) == 1_500
    assert ordered_pop.blocked_until(held(), "b", 1_500) is None
    assert ordered_pop.blocked_until(held(visible_ms={11: 9_000}), "b", 1_600) == 9_000
    assert ordered_pop.blocked_until(held(visible_ms={11: 9_000}, acked=0b010), "b", 1_600) is None


def test_the_same_attempt_is_not_blocked() -> None:
    assert ordered_pop.blocked_until(held(), "a", 1_200) is None
    assert (
        ordered_pop.blocked_until(ordered_pop.hold(None, [1], 0, 10_000, None), None, 5) == 10_000
    )


def test_progress_follows_the_first_that_is_not_acknowledged() -> None:
    lock = held()
    assert ordered_pop.acknowledge(lock, 11, 1_000, 10) == 10
    assert ordered_pop.acknowledge(lock, 10, 1_000, 10) == 13
    assert not ordered_pop.is_free(lock)
    assert ordered_pop.acknowledge(lock, 13, 1_000, 13) == 14
    assert ordered_pop.is_free(lock)


def test_only_the_holder_may_acknowledge() -> None:
    assert ordered_pop.acknowledge(held(), 10, 999, 10) is None
    assert ordered_pop.acknowledge(held(), 12, 1_000, 10) is None
    assert ordered_pop.acknowledge(held(), 9, 999, 10) == 10, "what is behind us is done"


def test_without_a_holder_nothing_new_is_acknowledged() -> None:
    assert ordered_pop.acknowledge(None, 9, 0, 10) == 10
    assert ordered_pop.acknowledge(None, 10, 0, 10) is None
    assert ordered_pop.acknowledge(None, 12, 0, 10) is None


def test_messages_that_come_again_are_counted() -> None:
    second = ordered_pop.hold(held(), [11, 13, 14], 2_000, 500, "b")
    assert second.times == {11: 1, 13: 1}
    third = ordered_pop.hold(second, [13, 14, 15], 3_000, 500, "c")
    assert third.times == {13: 2, 14: 1}


def test_a_suspended_message_does_not_count_unless_its_time_is_changed_again() -> None:
    lock = ordered_pop.hold(held(), [10, 11, 13], 2_000, 500, "b")
    ordered_pop.change_visibility(lock, 10, 9_000, suspend=True)
    ordered_pop.change_visibility(lock, 11, 9_000, suspend=True)
    ordered_pop.change_visibility(lock, 11, 9_000, suspend=False)
    assert ordered_pop.blocked_until(lock, "c", 2_600) == 9_000, "the order is kept"
    assert ordered_pop.hold(lock, [10, 11, 13], 9_000, 500, "c").times == {10: 1, 11: 2, 13: 2}
    first = held()
    ordered_pop.change_visibility(first, 10, 9_000, suspend=True)
    assert ordered_pop.hold(first, [10], 9_000, 500, "b").times == {}


def test_a_repeated_attempt_does_not_count() -> None:
    second = ordered_pop.hold(held(), [10, 11], 2_000, 500, "b")
    assert ordered_pop.hold(second, [10, 11], 2_100, 500, "b").times == second.times


def test_a_pop_from_before_the_clock_was_set_back_blocks_no_queue() -> None:
    ahead = ordered_pop.hold(None, [1], 30 * 86_400_000, 500, None)
    assert ordered_pop.blocked_until(ahead, None, 30 * 86_400_000 - 60_000) is not None
    assert ordered_pop.blocked_until(ahead, None, 0) is None
