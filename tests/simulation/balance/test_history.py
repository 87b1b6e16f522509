"""BalanceHistory: the times for which consumers own queues."""

import pytest

from roquet.model.queue import MessageQueue
from simulation.balance.history import BalanceHistory

QUEUE = MessageQueue("flights", "broker-1", 0)
OTHER = MessageQueue("flights", "broker-1", 1)


def owning() -> BalanceHistory:
    """A history in which c1 owns two queues."""
    history = BalanceHistory(lambda: 1)
    history.assign("c1", [QUEUE, OTHER])
    return history


def test_assignments_are_lines() -> None:
    assert [line.split(maxsplit=1)[1] for line in owning().lines] == [
        "c1 holds flights/broker-1/0",
        "c1 holds flights/broker-1/1",
    ]


def test_a_consumer_that_releases_some_queues_owns_the_others() -> None:
    history = owning()
    history.release("c1", [OTHER], "revoked")
    assert [(o.queue, o.until_ms, o.ended_by) for o in history.ownerships] == [
        (QUEUE, None, ""),
        (OTHER, 1, "revoked"),
    ]
    assert history.lines[-1].endswith("c1 lets go flights/broker-1/1: revoked")


@pytest.mark.parametrize("cause", ["left", "killed"])
def test_a_consumer_that_is_gone_owns_nothing(cause: str) -> None:
    history = owning()
    if cause == "left":
        history.consumer_left("c1")
    else:
        history.consumer_killed("c1")
    assert {o.ended_by for o in history.ownerships} == {cause}
