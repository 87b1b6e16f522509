from contextlib import ExitStack

import pytest

from roquet.broker.tables.change_waiters import WAITERS_MAX, ChangeWaiters


def test_only_so_many_may_wait_at_once() -> None:
    waiters = ChangeWaiters()
    with ExitStack() as stack:
        places = [stack.enter_context(waiters.place()) for _ in range(WAITERS_MAX + 2)]
        assert places == [True] * WAITERS_MAX + [False] * 2
        assert waiters.count == WAITERS_MAX
    assert waiters.count == 0


def test_a_place_is_free_again_after_an_error() -> None:
    waiters = ChangeWaiters()
    with pytest.raises(ValueError, match="no"), waiters.place():
        raise ValueError("no")
    assert waiters.count == 0
