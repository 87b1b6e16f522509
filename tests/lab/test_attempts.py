"""Of several attempts at one message the one that ended first counts."""

import numpy as np
from tests.lab.conftest import history

from roquet.lab.attempts import Attempts, SimulatedMessages
from roquet.lab.timeline import NEVER


def attempts(*rows: tuple[int, int, int, int, bool]) -> Attempts:
    message, member, begin, end, done = (np.array(column) for column in zip(*rows, strict=True))
    return Attempts(message=message, member=member, begin=begin, end=end, done=done)


def test_the_try_that_ended_first_is_when_the_work_was_done() -> None:
    begin, end, member = attempts((0, 1, 5, 20, True), (0, 2, 9, 15, True)).first(1)
    assert (begin[0], end[0], member[0]) == (9, 15, 2)


def test_a_try_that_was_cut_does_not_count() -> None:
    begin, end, member = attempts((0, 1, 5, 8, False), (0, 2, 9, 15, True)).first(2)
    assert (begin[0], end[0], member[0]) == (9, 15, 2)
    assert (begin[1], end[1], member[1]) == (NEVER, NEVER, -1)


def test_messages_of_histories_are_stored_one_after_the_other() -> None:
    timelines = [history([(0, 0, 1), (5, 1, 2)]), history([(1, 1, 3), (2, 0, 4)])]
    messages = SimulatedMessages.of(timelines)
    assert messages.count == 2
    assert (messages.sent // 1_000).tolist() == [0, 5, 1, 2]
    assert messages.queue.tolist() == [0, 1, 1, 0]
