"""The journal: lines that repeat, facts that checks read."""

from roquet.model.queue import MessageQueue
from roquet.testing.simulation.journal import Handling, Journal

QUEUE = MessageQueue("flights", "broker-1", 0)


def written() -> Journal:
    now = iter(range(100))
    journal = Journal(lambda: next(now))
    journal.hold("m1", [QUEUE])
    journal.acknowledge("key0:0", QUEUE, 0)
    handling = journal.begin(Handling("m1", "key0:0", "key0", 0, QUEUE, 0, 5))
    journal.end(handling, failed=False)
    journal.disturb("KILL m1")
    journal.let_go("m1", None, "killed")
    return journal


def test_what_happened_is_told_line_by_line_with_its_time() -> None:
    journal = written()
    assert [line.split(maxsplit=1)[1] for line in journal.lines] == [
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
    journal = Journal(lambda: 1)
    other = MessageQueue("flights", "broker-1", 1)
    journal.hold("m1", [QUEUE, other])
    journal.let_go("m1", [other], "revoked")
    assert [(h.queue, h.ended_by) for h in journal.holdings] == [(QUEUE, ""), (other, "revoked")]
