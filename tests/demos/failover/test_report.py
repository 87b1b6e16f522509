import msgspec

from demos.failover import report
from demos.failover.facts import FailoverFacts, verdict
from demos.failover.flight_table import TableCounts
from demos.failover.timeline import (
    Acknowledgement,
    BrokerSample,
    BrokerState,
    FailoverTimeline,
    MasterFault,
)

FAULT = MasterFault(
    name="killed", at_ms=1_000, mended_ms=4_000, before="broker-1", after="broker-2", pause_ms=250
)

GOOD = FailoverFacts(
    arrived=2,
    sent=2,
    failures=1,
    stored=3,
    table=TableCounts(messages=3, rows=2, conflicts=0, disordered=0, found=2),
    faults=[FAULT],
)


def acknowledged(row: int, at_ms: int, broker: str) -> Acknowledgement:
    return Acknowledgement(row=row, queue_id=0, offset=row, at_ms=at_ms, broker=broker)


SEEN = FailoverTimeline(
    brokers=["broker-1", "broker-2"],
    arrived_ms=[0, 1_100],
    acknowledged=[acknowledged(0, 5, "broker-1"), acknowledged(1, 1_250, "broker-2")],
    samples=[
        BrokerSample(at_ms=0, broker="broker-1", state=BrokerState.LEADS, confirmed=1),
        BrokerSample(at_ms=300, broker="broker-1", state=BrokerState.FENCED, confirmed=1),
        BrokerSample(at_ms=0, broker="broker-2", state=BrokerState.FOLLOWS),
        BrokerSample(at_ms=400, broker="broker-2", state=BrokerState.LEADS, confirmed=2),
        BrokerSample(at_ms=4_900, broker="broker-1", state=BrokerState.FOLLOWS, confirmed=2),
    ],
    faults=[FAULT],
    moments=[(1_000, "killed"), (4_000, "back")],
    end_ms=5_000,
)


def test_the_page_holds_the_verdict_the_counts_the_pauses_and_three_pictures() -> None:
    page = report.html(GOOD, SEEN)
    assert verdict(GOOD) in page
    assert page.count("<svg") == 3
    for words in ("broker-2", "killed", "back", "0.25 s", "master without a lease", "arriving"):
        assert words in page
    assert '<td class="whole good">broker-2</td>' in page


def test_a_failure_is_red_on_the_page() -> None:
    page = report.html(msgspec.structs.replace(GOOD, arrived=3), SEEN)
    assert '<p class="bad">FAILED' in page
    assert '<td class="number bad">2</td>' in page
