"""Trigger limits: the size of a batch, and the earliest time for it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.lake.queue_offsets import OffsetRange
from roquet.model.errors import ConfigError
from roquet.spark.options import parse
from roquet.spark.source import trigger_limits
from roquet.spark.source.trigger_limits import TriggerLimits

OPTIONS = {"namesrv": "namesrv:9876", "topic": "orders"}


def limits(**options: str) -> TriggerLimits:
    return TriggerLimits.of(parse({**OPTIONS, **options}, {}))


def piece(queue_id: int, rows: int) -> OffsetRange:
    return OffsetRange("orders", "a", queue_id, 100, 100 + rows)


def test_limits_are_parsed_from_options() -> None:
    parsed = limits(
        maxOffsetsPerTrigger="9", maxBytesPerTrigger="1MiB",
        minOffsetsPerTrigger="3", maxTriggerDelay="5s",
    )  # fmt: skip
    assert parsed == TriggerLimits(rows_max=9, bytes_max=2**20, rows_min=3, delay_ms=5000)
    assert limits() == TriggerLimits(delay_ms=15 * 60_000)


def test_limits_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ConfigError, match="minOffsetsPerTrigger is more than maxOffsetsPerTrigger"):
        limits(minOffsetsPerTrigger="10", maxOffsetsPerTrigger="9")


@pytest.mark.parametrize(
    ("rows", "waited_ms", "held"),
    [(2, 100, True), (3, 100, False), (2, 1000, False), (2, None, False), (0, 0, True)],
)
def test_few_rows_wait_for_more_or_for_the_delay(
    rows: int, waited_ms: int | None, held: bool
) -> None:
    assert TriggerLimits(rows_min=3, delay_ms=1000).holds_back(rows, waited_ms) is held


def test_without_a_minimum_nothing_is_held_back() -> None:
    assert not TriggerLimits(delay_ms=1000).holds_back(0, 0)


@pytest.mark.parametrize(
    ("idle_ms", "wanted"), [(0, 10), (100, 10), (200, 20), (1000, 25), (3_600_000, 25)]
)
def test_polls_pause_for_a_tenth_of_the_quiet_time(idle_ms: int, wanted: int) -> None:
    assert trigger_limits.pause_ms(idle_ms) == wanted


def test_bytes_become_rows_by_the_mean_sizes_of_the_queues() -> None:
    pieces = [piece(0, 100), piece(1, 300)]
    sizes = {pieces[0].queue: 1000.0, pieces[1].queue: 200.0}
    assert trigger_limits.rows_within(40_000, pieces, sizes) == 100, "400 bytes each on the whole"


def test_a_queue_of_unknown_message_size_has_the_mean() -> None:
    pieces = [piece(0, 100), piece(1, 300)]
    assert trigger_limits.rows_within(40_000, pieces, {pieces[0].queue: 400.0}) == 100
    assert trigger_limits.rows_within(40_000, pieces, {}) == 400, "nobody tells anything: no limit"


def test_a_message_larger_than_the_limit_comes_alone() -> None:
    assert trigger_limits.rows_within(10, [piece(0, 5)], {("orders", "a", 0): 1000.0}) == 1


@given(
    st.lists(st.tuples(st.integers(1, 10**6), st.floats(100, 10**6)), min_size=1, max_size=9),
    st.integers(10**6, 10**9),
)
def test_the_rows_take_about_the_bytes_and_no_more(
    queues: list[tuple[int, float]], bytes_max: int
) -> None:
    pieces = [piece(queue_id, rows) for queue_id, (rows, _) in enumerate(queues)]
    sizes = {piece(queue_id, 1).queue: size for queue_id, (_, size) in enumerate(queues)}
    rows = trigger_limits.rows_within(bytes_max, pieces, sizes)
    total = sum(map(len, pieces))
    mean = sum(count * size for count, size in queues) / total
    assert rows == total or (rows * mean <= bytes_max * 1.001 < (rows + 1) * mean * 1.002)


def test_the_longest_ranges_are_sampled() -> None:
    pieces = [piece(queue_id, queue_id + 1) for queue_id in range(40)]
    longest = trigger_limits.longest_ranges(pieces)
    assert len(longest) == trigger_limits.SAMPLED_MAX
    assert min(map(len, longest)) == 9
