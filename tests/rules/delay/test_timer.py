import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.model.errors import MessageIllegal
from roquet.rules.delay import timer
from roquet.rules.delay import timer as rules

NOW = 1_700_000_000_500
HUNDRED_YEARS_MS = 100 * 365 * rules.DAY_MS


def asks(**properties: str) -> int | None:
    return rules.out_ms(properties, NOW, rules.MAX_DELAY_MS)


@pytest.mark.parametrize(
    ("properties", "wanted"),
    [
        ({}, False),
        ({"DELAY": "3"}, False),
        ({"TIMER_DELIVER_MS": "1"}, True),
        ({"TIMER_DELAY_SEC": "1"}, True),
        ({"TIMER_DELAY_MS": "1"}, True),
        ({"TIMER_DELAY_MS": "1", "TIMER_OUT_MS": "1"}, False),
    ],
)
def test_a_wish_that_was_fulfilled_is_none(properties: dict[str, str], wanted: bool) -> None:
    assert rules.is_timed(properties) is wanted


@pytest.mark.parametrize(
    ("properties", "at_ms"),
    [
        ({"TIMER_DELIVER_MS": "1700000009999"}, 1_700_000_009_999),
        ({"TIMER_DELAY_SEC": "3"}, NOW + 3_000),
        ({"TIMER_DELAY_MS": "250"}, NOW + 250),
        ({"TIMER_DELAY_MS": "+250"}, NOW + 250),
        ({"TIMER_DELAY_MS": "-250"}, NOW - 250),
        ({"TIMER_DELIVER_MS": "1", "TIMER_DELAY_MS": "2", "TIMER_DELAY_SEC": "3"}, NOW + 3_000),
        ({"TIMER_DELIVER_MS": "1", "TIMER_DELAY_MS": "2"}, NOW + 2),
    ],
)
def test_several_delivery_times_have_apaches_precedence(
    properties: dict[str, str], at_ms: int
) -> None:
    assert rules.requested_ms(properties, NOW) == at_ms


@pytest.mark.parametrize("name", timer.DELIVERY_TIME_PROPERTIES)
@pytest.mark.parametrize(
    "text", ["", "x", "1.5", "1e9", " 1", "٣", "9" * 20, "9" * 19, "-" + "9" * 19, "1_000"]
)
def test_an_invalid_number_is_refused_by_name(name: str, text: str) -> None:
    with pytest.raises(MessageIllegal, match=name):
        asks(**{name: text})


@pytest.mark.parametrize(
    "properties",
    [
        {"TIMER_DELIVER_MS": "0"},
        {"TIMER_DELIVER_MS": "-5"},
        {"TIMER_DELIVER_MS": str(NOW)},
        {"TIMER_DELAY_SEC": "0"},
        {"TIMER_DELAY_MS": "-100000"},
        {"TIMER_DELIVER_MS": str(NOW - HUNDRED_YEARS_MS)},
    ],
)
def test_a_time_that_has_passed_is_at_once(properties: dict[str, str]) -> None:
    assert asks(**properties) is None


@pytest.mark.parametrize(
    "properties",
    [
        {"TIMER_DELIVER_MS": str(NOW + rules.MAX_DELAY_MS + 1)},
        {"TIMER_DELIVER_MS": str(NOW + HUNDRED_YEARS_MS)},
        {"TIMER_DELAY_SEC": str(3 * 86_400 + 1)},
        {"TIMER_DELAY_SEC": "9223372036854775807"},
        {"TIMER_DELAY_MS": "9223372036854775807"},
    ],
)
def test_a_time_too_far_away_is_refused_with_the_limit(properties: dict[str, str]) -> None:
    with pytest.raises(MessageIllegal, match="259200 s at most"):
        asks(**properties)


def test_the_farthest_time_is_taken() -> None:
    assert asks(TIMER_DELIVER_MS=str(NOW + rules.MAX_DELAY_MS)) == rules.floor_ms(
        NOW + rules.MAX_DELAY_MS
    )
    far = {"TIMER_DELAY_MS": str(rules.MAX_DELAY_LIMIT_MS)}
    assert rules.out_ms(far, NOW, rules.MAX_DELAY_LIMIT_MS) == rules.floor_ms(
        NOW + rules.MAX_DELAY_LIMIT_MS
    )


@pytest.mark.parametrize(
    ("wished", "slot"), [(3_000, 2_000), (3_001, 3_000), (3_999, 3_000), (4_000, 3_000)]
)
def test_a_slot_is_the_second_that_ends_with_its_time(wished: int, slot: int) -> None:
    assert rules.slot_ms(wished) == slot


@given(st.integers(1, rules.MAX_DELAY_MS), st.integers(0, 2**42))
def test_due_times_are_neither_early_nor_a_second_late(delay: int, now_ms: int) -> None:
    at = now_ms + delay
    properties = {"TIMER_DELIVER_MS": str(at)}
    out = rules.out_ms(properties, now_ms, rules.MAX_DELAY_MS)
    assert out is not None
    assert out < at <= out + 1_000
    assert rules.due_ms(properties, now_ms, out) == at


def test_a_delay_counts_from_when_the_message_was_stored() -> None:
    out = asks(TIMER_DELAY_MS="2700")
    assert out == 1_700_000_003_000
    assert rules.due_ms({"TIMER_DELAY_MS": "2700"}, NOW, out) == NOW + 2_700


@pytest.mark.parametrize(
    "properties", [{"TIMER_DELAY_MS": "2700"}, {"TIMER_DELAY_MS": "x"}, {}, {"TIMER_DELAY_MS": "0"}]
)
def test_a_message_that_was_stored_anew_comes_as_its_slot_ends(properties: dict[str, str]) -> None:
    assert rules.due_ms(properties, NOW + rules.DAY_MS, 5_000) == 6_000


@pytest.mark.parametrize(
    ("out", "stop"),
    [
        (rules.WINDOW_MS - 1_000, (rules.WINDOW_MS - 1_000, False)),
        (rules.WINDOW_MS, (rules.WINDOW_MS // 2, True)),
        (rules.WINDOW_MS + rules.WINDOW_MS // 3 - 1_000, (rules.WINDOW_MS // 2, True)),
        (rules.WINDOW_MS + rules.WINDOW_MS // 3, (rules.WINDOW_MS, True)),
        (40 * rules.DAY_MS, (rules.WINDOW_MS, True)),
        (-5_000, (-5_000, False)),
    ],
)
def test_a_far_time_has_a_stop_on_the_way(out: int, stop: tuple[int, bool]) -> None:
    base = 1_700_000_000_000
    assert rules.stop_ms(base + out, base, rules.WINDOW_MS) == (base + stop[0], stop[1])


@given(st.integers(0, 40 * 86_400), st.integers(2, 200_000))
def test_the_last_stop_is_the_message_s_own_second(left_s: int, window_s: int) -> None:
    out, write, rolls, stops = left_s * 1_000, 0, True, 0
    while rolls:
        stop, rolls = rules.stop_ms(out, write, window_s * 1_000)
        assert write <= stop <= out
        assert stop - write <= window_s * 1_000
        assert stop > write or not rolls
        write, stops = stop, stops + 1
        if stops > 100:
            return
    assert write == out


def test_a_short_retention_makes_a_short_window() -> None:
    assert rules.window_ms(72 * 3_600_000) == rules.WINDOW_MS
    assert rules.window_ms(10 * rules.DAY_MS) == rules.WINDOW_MS
    assert rules.window_ms(3 * 3_600_000) == 2 * 3_600_000
    assert rules.window_ms(0) == 2_000


def test_flags_of_a_timer_unit() -> None:
    plain = timer.magic(rolls=False, deletes=False)
    rolls = timer.magic(rolls=True, deletes=False)
    deletes = timer.magic(rolls=False, deletes=True)
    later = timer.magic(rolls=True, deletes=True)
    assert (plain, rolls, deletes, later) == (1, 3, 5, 7)
    assert [timer.must_roll(kind) for kind in (plain, rolls, deletes, later)] == [0, 1, 0, 1]
    assert [timer.is_recall_due(kind) for kind in (plain, rolls, deletes, later)] == [0, 0, 1, 0]
    assert [timer.is_delete(kind) for kind in (plain, rolls, deletes, later)] == [0, 0, 1, 1]


@pytest.mark.parametrize("left", [0, -1, rules.MAX_DELAY_MS, HUNDRED_YEARS_MS])
def test_past_and_unreachable_times_cannot_be_recalled(left: int) -> None:
    assert (
        rules.recall_fault(NOW + left, NOW, rules.MAX_DELAY_MS)
        == "recall failed, timestamp invalid"
    )


def test_waiting_messages_can_be_recalled() -> None:
    assert rules.recall_fault(NOW + 1, NOW, rules.MAX_DELAY_MS) is None
    assert rules.recall_fault(NOW + rules.MAX_DELAY_MS - 1, NOW, rules.MAX_DELAY_MS) is None


SET_BACK = timer.ClockSetBack(before_ms=1_000_000, by_ms=3_600_000, now_ms=1_200_000)
"""The clock jumped from 1,000 s to 4,600 s; at 4,800 s it was set back to 1,200 s."""


@pytest.mark.parametrize(
    ("properties", "out", "moved"),
    [
        ({"TIMER_DELAY_MS": "60000"}, 4_660_000, 1_060_000),
        ({"TIMER_DELAY_SEC": "60"}, 4_759_000, 1_159_000),
        ({"TIMER_DELAY_MS": "60000"}, 1_050_000, None),  # stored before the jump
        ({"TIMER_DELAY_MS": "60000"}, 1_259_000, None),  # stored since
        ({"TIMER_DELIVER_MS": "4660001"}, 4_660_000, None),
        ({"TIMER_DEL_UNIQKEY": "K", "TIMER_DELIVER_MS": "4900001"}, 4_900_000, 1_300_000),
        ({"TIMER_DEL_UNIQKEY": "K", "TIMER_DELIVER_MS": "4900001"}, 1_300_000, None),
        ({"TIMER_DEL_UNIQKEY": "K", "TIMER_DELIVER_MS": "1300001"}, 1_300_000, None),
    ],
)
def test_only_a_delay_that_began_while_the_clock_was_ahead_ends_sooner(
    properties: dict[str, str], out: int, moved: int | None
) -> None:
    assert SET_BACK.out_ms(properties, out) == moved


def test_a_message_whose_clock_was_set_back_by_part_of_a_second_comes_later_not_sooner() -> None:
    set_back = timer.ClockSetBack(before_ms=1_000_000, by_ms=3_599_500, now_ms=1_200_000)
    assert set_back.out_ms({"TIMER_DELAY_MS": "60000"}, 4_660_000) == 1_061_000


BEGIN = 1_700_000_000_000
Unit = tuple[int, int]
units = st.tuples(st.integers(0, 1_000), st.integers(0, 2**47)).map(
    lambda unit: (BEGIN + unit[0], unit[1])
)


def drained(second: rules.DueQueue) -> list[Unit]:
    dues = []
    while (first := second.first()) is not None:
        dues.append(first)
        second.drop()
    return dues


@given(st.lists(units, unique=True), st.lists(units, unique=True))
def test_messages_come_by_time_and_then_by_coming(before: list[Unit], after: list[Unit]) -> None:
    second = rules.DueQueue(BEGIN, -1, (0, 0))
    for unit in before:
        second.add(*unit)
    second.first()
    more = [unit for unit in after if unit not in before]
    for unit in more:
        second.add(*unit)
    assert drained(second) == sorted(before + more)


def test_messages_delivered_before_a_restart_do_not_come_again() -> None:
    second = rules.DueQueue(BEGIN, -1, (BEGIN + 500, 104))
    for unit in [(BEGIN + 400, 900), (BEGIN + 500, 104), (BEGIN + 500, 156), (BEGIN + 501, 0)]:
        second.add(*unit)
    assert drained(second) == [(BEGIN + 500, 156), (BEGIN + 501, 0)]


def test_a_second_is_known_when_its_chain_has_ended() -> None:
    second = rules.DueQueue(BEGIN, 52, (0, 0))
    assert not second.is_known
    second.next = -1
    assert second.is_known


def test_a_message_is_taken_back_by_topic_and_key() -> None:
    second = rules.DueQueue(BEGIN, -1, (0, 0))
    second.recall("orders", "k1")
    assert second.is_recalled("orders", "k1")
    assert not second.is_recalled("orders", "k2")
    assert not second.is_recalled("bills", "k1")


def test_messages_due_before_the_second_come_first() -> None:
    second = rules.DueQueue(BEGIN, -1, (0, 0))
    second.add(BEGIN + 1, 0)
    second.add(BEGIN - 700, 52)
    assert drained(second) == [(BEGIN, 52), (BEGIN + 1, 0)]
