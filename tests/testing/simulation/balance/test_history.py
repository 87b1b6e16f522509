"""The journal: lines that repeat, facts that checks read."""

from roquet.model.queue import MessageQueue
from roquet.testing.simulation.balance.history import BalanceHistory, HandlingAttempt

QUEUE = MessageQueue("flights", "broker-1", 0)


def written() -> BalanceHistory:
    now = iter(range(100))
    history = BalanceHistory(lambda: next(now))
    history.hold("m1", [QUEUE])
    history.acknowledge("key0:0", QUEUE, 0)
    handling = history.begin(HandlingAttempt("m1", "key0:0", "key0", 0, QUEUE, 0, 5))
    history.end(handling, failed=False)
    history.disturb("KILL m1")
    history.let_go("m1", None, "killed")
    return history


def test_what_happened_is_told_line_by_line_with_its_time() -> None:
    history = written()
    assert [line.split(maxsplit=1)[1] for line in history.lines] == [
        "m1 holds flights/broker-1/0",
        "stored key0:0 flights/broker-1/0 0",
        "m1 begins key0:0 flights/broker-1/0",
        "m1 ends key0:0",
        "** KILL m1",
        "m1 lets go flights/broker-1/0: killed",
    ]


def test_the_same_lines_have_the_same_digest() -> None:
    assert written().digest() == written().digest()
    other = written()
    other.say("one more")
    assert other.digest() != written().digest()


def test_who_lets_go_of_some_queues_holds_the_others() -> None:
    history = BalanceHistory(lambda: 1)
    other = MessageQueue("flights", "broker-1", 1)
    history.hold("m1", [QUEUE, other])
    history.let_go("m1", [other], "revoked")
    assert [(h.queue, h.ended_by) for h in history.holdings] == [(QUEUE, ""), (other, "revoked")]
