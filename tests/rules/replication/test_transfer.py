import pytest

from roquet.rules.replication import transfer
from roquet.rules.replication.sync_state import ReplicaReportFacts, SentFrame

MIB = 1 << 20
BOUNDS = transfer.LogBounds(first=MIB, end=3_101_292, file_size=MIB)


def test_an_empty_log_begins_at_the_last_file_or_at_the_oldest() -> None:
    assert transfer.transfer_start(0, BOUNDS, from_last_file=True) == 0x200000
    assert transfer.transfer_start(0, BOUNDS, from_last_file=False) == MIB


def test_a_log_goes_on_where_it_ends() -> None:
    for end in (MIB, 2 * MIB + 7, 3_101_292):
        assert transfer.transfer_start(end, BOUNDS, from_last_file=True) == end


@pytest.mark.parametrize("end", [1, MIB - 1, 3_101_293])
def test_a_log_that_ends_where_the_masters_is_not_gets_nothing(end: int) -> None:
    assert transfer.transfer_start(end, BOUNDS, from_last_file=False) is None


def test_a_report_beyond_the_masters_end_cannot_be_true() -> None:
    assert transfer.is_possible_report(0, 0)
    assert transfer.is_possible_report(7, 7)
    assert not transfer.is_possible_report(8, 7)
    assert not transfer.is_possible_report(-1, 7)


def test_bytes_count_until_the_second_ends() -> None:
    meter = transfer.TransferMeter()
    meter.add(60, now_ms=5_000)
    meter.add(30, now_ms=5_999)
    assert meter.left(100, now_ms=5_999) == 10
    meter.add(30, now_ms=5_999)
    assert meter.left(100, now_ms=5_999) == 0, "one frame may be over"
    assert meter.left(100, now_ms=6_000) == 100


def test_the_rate_is_that_of_the_last_whole_second() -> None:
    meter = transfer.TransferMeter()
    meter.add(60, now_ms=5_000)
    assert meter.bytes_per_second(5_999) == 0
    assert meter.bytes_per_second(6_000) == 60
    meter.add(7, now_ms=6_001)
    assert meter.bytes_per_second(8_000) == 0, "nothing was transferred in second 7"


def test_a_full_second_is_waited_out() -> None:
    assert (transfer.next_second_ms(5_000), transfer.next_second_ms(5_999)) == (1_000, 1)


def claim(caught_up_ms: int | None) -> transfer.ReplicaClaim:
    facts = ReplicaReportFacts(broker_id=2, report=100)
    return transfer.ReplicaClaim(facts=facts, sent=SentFrame(100, 0), caught_up_ms=caught_up_ms)


def test_an_idle_replica_is_no_longer_silent_than_a_master_is_patient() -> None:
    assert transfer.patience_ms(5_000) == 7_500


@pytest.mark.parametrize(
    ("holder_ms", "claim_ms", "replaces"),
    [
        (10_000, 10_000, False),
        (2_500, 10_000, False),
        (2_499, 10_000, True),
        (None, 10_000, True),
        (None, 2_499, False),
        (None, None, False),
        (0, None, False),
    ],
)
def test_a_replica_is_replaced_only_by_one_that_has_caught_up_while_it_has_not(
    holder_ms: int | None, claim_ms: int | None, replaces: bool
) -> None:
    assert transfer.may_replace(claim(holder_ms), claim(claim_ms), 10_000, 7_500) == replaces


def test_the_next_holder_is_the_one_that_caught_up_last() -> None:
    assert transfer.next_holder({}) is None
    assert transfer.next_holder({4: claim(None), 5: claim(None)}) == 4
    assert transfer.next_holder({4: claim(None), 5: claim(7), 6: claim(9), 7: claim(9)}) == 6


def place(host: str, report: int | None = None) -> transfer.ConnectionPlace:
    return transfer.ConnectionPlace(host=host, report=report)


@pytest.mark.parametrize(
    ("places", "ended"),
    [
        ({1: place("a", 900), 2: place("a"), 3: place("a")}, 2),
        ({1: place("b"), 2: place("a"), 3: place("a"), 4: place("a", 900)}, 2),
        ({1: place("a", 900), 2: place("a", 900), 3: place("a", 900)}, 3),
        ({1: place("b", 900), 2: place("a", 0), 3: place("a", 900)}, 2),
        ({1: place("b", 900), 2: place("a", 900), 3: place("a", 900), 4: place("c", 900)}, 3),
    ],
)
def test_who_has_not_reported_makes_room_and_then_whose_log_is_the_shortest(
    places: dict[int, transfer.ConnectionPlace], ended: int
) -> None:
    assert transfer.most_dispensable(places) == ended
