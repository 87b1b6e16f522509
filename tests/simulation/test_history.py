"""History: lines that repeat, and facts that checks read."""

from roquet.model.queue import MessageQueue
from simulation.history import Disturbance, HandlingAttempt, History
from simulation.scenario import Fault

QUEUE = MessageQueue("flights", "broker-1", 0)


def attempt(name: str, consumer: str = "c1") -> HandlingAttempt:
    return HandlingAttempt(
        consumer=consumer, group="g", name=name, queue=QUEUE, offset=0, tries=0, began_ms=5
    )


def written() -> History:
    now = iter(range(100))
    history = History(lambda: next(now))
    history.acknowledge("m1", 0, "at once")
    history.end(history.begin(attempt("m1")), failed=False)
    history.end(history.begin(attempt("m2")), failed=True)
    history.disturb(Fault.PARTITION, "c1", "b1")
    history.broker_crashed("b1", 90)
    history.broker_returned("b1")
    history.consumer_left("c1")
    return history


def test_events_are_lines_with_their_time() -> None:
    assert [line.split(maxsplit=1)[1] for line in written().lines] == [
        "stored m1 at once",
        "c1 begins m1 flights/broker-1/0 (0)",
        "c1 ends m1",
        "c1 begins m2 flights/broker-1/0 (0)",
        "c1 fails m2",
        "** PARTITION c1 b1",
        "** CRASH b1",
        "** back: b1",
        "c1 has left",
    ]


def test_equal_lines_have_the_same_digest() -> None:
    assert written().digest() == written().digest()
    longer = written()
    longer.say("one more")
    assert longer.digest() != written().digest()


def test_only_successful_attempts_count_as_handled() -> None:
    assert written().handled("g") == {"m1"}
    assert written().handled("other") == set()


def test_handlers_of_a_killed_consumer_are_no_longer_in_progress() -> None:
    history = History(lambda: 1)
    history.begin(attempt("m1"))
    history.begin(attempt("m1", "c2"))
    history.consumer_killed("c1")
    assert list(history.in_progress) == [("c2", "m1")]


def test_faults_are_kept_with_their_time() -> None:
    history = History(lambda: 7)
    history.disturb(Fault.CRASH, "b1")
    history.disturb(Fault.JOIN)
    assert history.times_of(Fault.CRASH) == [7]
    assert history.disturbances[1] == Disturbance(7, Fault.JOIN, ())
