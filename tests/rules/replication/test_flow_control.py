from roquet.rules.replication.flow_control import TransferMeter, next_second_ms


def test_bytes_count_until_the_second_ends() -> None:
    meter = TransferMeter()
    meter.add(60, now_ms=5_000)
    meter.add(30, now_ms=5_999)
    assert meter.left(100, now_ms=5_999) == 10
    meter.add(30, now_ms=5_999)
    assert meter.left(100, now_ms=5_999) == 0, "one frame may be over"
    assert meter.left(100, now_ms=6_000) == 100


def test_the_rate_is_that_of_the_last_whole_second() -> None:
    meter = TransferMeter()
    meter.add(60, now_ms=5_000)
    assert meter.bytes_per_second(5_999) == 0
    assert meter.bytes_per_second(6_000) == 60
    meter.add(7, now_ms=6_001)
    assert meter.bytes_per_second(8_000) == 0, "nothing was transferred in second 7"


def test_a_full_second_is_waited_out() -> None:
    assert (next_second_ms(5_000), next_second_ms(5_999)) == (1_000, 1)
