"""The lag page: which groups will not catch up, and by when."""

import re

import msgspec
import pyarrow as pa
import pytest

from roquet.lake.lag.lag_page import html, is_late, sentence, time_text, verdict
from roquet.lake.lag.lag_summary import GroupLag, LagReport
from roquet.lake.lag.sampling import SCHEMA
from roquet.lake.lag.trends import LagForecast, LagState

NOON = 1_769_860_800_000


def group_lag(state: LagState, **changes: object) -> GroupLag:
    fields: dict[str, object] = {"state": state, "lag": 5000, "come": 5.0, "handled": 2.0}
    outlook = LagForecast(**{**fields, **changes})  # type: ignore[arg-type]
    return GroupLag(group="bill<ing", topic="orders", queues=4, outlook=outlook, worst="a:3")


def report_of(*standings: GroupLag) -> LagReport:
    return LagReport(
        samples=3, at_ms=NOON, standings=standings, page="lag.html", namesrv="10.0.0.1:9876"
    )


ROWS = pa.Table.from_pylist(
    [
        {
            "at": NOON - 60_000 * n, "group": "bill<ing", "topic": "orders", "broker": "a",
            "queue_id": queue, "begin": 0, "committed": 0, "end": 9, "lag": 9 - n,
        }
        for n in range(3)
        for queue in (0, 1)
    ],
    SCHEMA,
)  # fmt: skip

SLOW = group_lag(LagState.FALLING_BEHIND, cut_off_s=7200.0)
FINE = group_lag(LagState.CAUGHT_UP, caught_up_s=0.0, lag=0)


def test_groups_that_will_not_catch_up_are_named_with_the_time() -> None:
    assert verdict(report_of(SLOW, FINE)) == (
        "bill<ing will not catch up with orders: falling behind, 5,000 behind, cut off by "
        "retention from 2026-01-31 14:00 UTC on"
    )
    assert "3 were deleted before it read them" in sentence(
        group_lag(LagState.CUT_OFF, lost=3), NOON
    )


def test_a_group_that_catches_up_is_not_late() -> None:
    assert verdict(report_of(FINE)) == "none of 1 groups is falling behind"
    assert verdict(report_of()) == "there is no group with progress"


@pytest.mark.parametrize(
    ("one", "late"),
    [
        (FINE, False),
        (group_lag(LagState.CATCHING_UP, caught_up_s=60.0), False),
        (group_lag(LagState.CATCHING_UP, caught_up_s=60.0, cut_off_s=30.0), True),
        (group_lag(LagState.STEADY), False),
        (group_lag(LagState.UNSURE), False),
        (group_lag(LagState.STOPPED), True),
        (group_lag(LagState.STOPPED, lag=0), False),
        (group_lag(LagState.CUT_OFF, lag=0, lost=4), True),
    ],
)
def test_a_group_that_catches_up_too_late_is_late(one: GroupLag, late: bool) -> None:
    assert is_late(one) is late


def test_the_page_has_a_table_and_a_picture_and_needs_nothing_else() -> None:
    text = html(report_of(SLOW, FINE), ROWS)
    for part in (
        "bill&lt;ing",
        "2026-01-31 14:00 UTC",
        '<td class="whole">2026-01-31 14:00 UTC</td>',
        "<th>state</th>",
        "10.0.0.1:9876",
        "2026-01-31 11:58:00 UTC",
        "<svg",
        "falling behind",
        'class="bad"',
    ):
        assert part in text
    assert not re.search(r"<script|<link|<img|@import|http-equiv", text)


def test_without_samples_there_is_no_picture() -> None:
    assert "<svg" not in html(report_of(), SCHEMA.empty_table())


def test_times_that_are_far_off_are_never() -> None:
    assert time_text(NOON, None) == "never"
    assert time_text(NOON, None, "-") == "-"
    assert time_text(NOON, 0.0) == "now"
    assert time_text(NOON, 1e18) == "never"


def test_long_names_are_cut_at_the_curves_alone() -> None:
    name = "a-group-with-a-name-that-fills-the-picture"
    rows = ROWS.set_column(1, "group", pa.array([name] * ROWS.num_rows))
    text = html(
        report_of(msgspec.structs.replace(SLOW, group=name), FINE), pa.concat_tables([ROWS, rows])
    )
    assert f">{name}<" in text
    assert "a-group-w\N{HORIZONTAL ELLIPSIS}e-picture: orders" in text


def test_a_group_that_lies_on_the_axis_has_no_label_at_the_curves() -> None:
    names = pa.array(["quick"] * ROWS.num_rows)
    quick = ROWS.set_column(ROWS.schema.get_field_index("group"), "group", names).set_column(
        ROWS.schema.get_field_index("lag"), SCHEMA.field("lag"), pa.array([0] * ROWS.num_rows)
    )
    fine = msgspec.structs.replace(FINE, group="quick")
    text = html(report_of(SLOW, fine), pa.concat_tables([ROWS, quick.cast(SCHEMA)]))
    assert "The curve is bill&lt;ing: orders. Not drawn" in text
    assert "would lie on the axis: 1." in text
    assert "quick: orders" not in text
    assert "<svg" not in html(report_of(fine), quick.cast(SCHEMA))
