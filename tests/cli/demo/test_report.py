import msgspec
from tests.cli.demo.test_facts import GOOD

from roquet.cli.demo import report
from roquet.cli.demo.event_log import HandledFlight, QueuesOwned
from roquet.cli.demo.facts import verdict
from roquet.cli.demo.report import DemoTimeline

JOURNEY = DemoTimeline(
    sent_ms=[0, 100, 200, 900],
    books={
        "consumer-1": [HandledFlight(0, 200), HandledFlight(1, 300)],
        "consumer-2": [HandledFlight(2, 400), HandledFlight(3, 950)],
    },
    owned={
        "consumer-1": [QueuesOwned(0, ("broker-a:0",))],
        "consumer-2": [QueuesOwned(0, ("broker-b:0",))],
    },
    ends_ms={"consumer-1": 500, "consumer-2": 1000},
    moments=[(500, "consumer-1 is killed")],
    end_ms=1000,
)


def test_the_page_holds_the_verdict_the_books_and_four_pictures() -> None:
    page = report.html(GOOD, JOURNEY)
    assert verdict(GOOD) in page
    assert page.count("<svg") == 4
    for words in ("consumer-2", "broker-a:0", "consumer-1 is killed", "UA", "hour of departure"):
        assert words in page


def test_a_failure_is_red_on_the_page() -> None:
    worse = msgspec.structs.replace(GOOD, sent=3)
    page = report.html(worse, JOURNEY)
    assert '<p class="bad">FAILED' in page
    assert '<td class="number bad">3</td>' in page
