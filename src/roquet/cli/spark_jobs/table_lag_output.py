"""roquet spark lag --table: the lag of archives, as their jobs have noted it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from roquet.cli.operator_command import Result
from roquet.cli.terminal import output
from roquet.net.clock import SYSTEM_CLOCK

if TYPE_CHECKING:
    from roquet.lake.lag.table_lag import TableLag

BAD: Final = "bold red"


def lag_of_tables(
    tables: Sequence[str], storage: Mapping[str, str], retention_ms: int | None
) -> Result:
    """The lag of each table; a failure when one of them has an alert."""
    from roquet.lake.lag.table_lag import table_lag
    from roquet.lake.status import read_statuses

    now_ms = SYSTEM_CLOCK.now_ms()
    default_s = None if retention_ms is None else retention_ms / 1000
    lags = [
        table_lag(table, status, now_ms, default_s)
        for table in tables
        for status in read_statuses(table, storage if "://" in table else {})
    ]
    return Result(
        json=({**msgspec.to_builtins(lag), "state": lag.state.words} for lag in lags),
        text=_parts(lags),
        is_failed=any(lag.alert for lag in lags),
    )


def _parts(lags: "Sequence[TableLag]") -> Iterator[Any]:
    shown = output.table(
        "table", "topic", "job", "commit", "committed", "overtaken in", "lag", "seconds", numbers=6
    )
    for lag in lags:
        shown.add_row(
            lag.table,
            lag.topic,
            lag.job,
            str(lag.number),
            output.time_text(lag.committed_ms),
            output.styled_text(duration_text(lag.overtaken_s), BAD if lag.alert else ""),
            f"{lag.lag:,}",
            f"{lag.lag_s:,.0f}",
        )
    yield shown
    for lag in lags:
        for broker in lag.brokers_away:
            yield f"{lag.table}: broker {broker} did not answer; what waits there is unknown"
        if lag.alert:
            yield f"{lag.table}: {lag.alert}"


def duration_text(seconds: float | None) -> str:
    """`3 h 20 min`, `2 d 4 h`; a dash for None."""
    if seconds is None:
        return "-"
    minutes = int(seconds // 60)
    days, hours = minutes // 1440, minutes // 60 % 24
    if days:
        return f"{days} d {hours} h"
    return f"{hours} h {minutes % 60} min" if hours else f"{minutes} min"
