"""Hourly counts: a producer's own count of its messages by hour."""

import json
from collections import Counter
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Final

from roquet.lake.audit.findings import HOUR_MS
from roquet.model.errors import ConfigError

COUNTS_FORMAT: Final = (
    "a producer's counts are rows with hour and count, and topic if there are several: JSON like "
    '[{"hour": "2026-01-31T12:00", "topic": "orders", "count": 12345}], or Parquet'
)

TIMESTAMP_MS_MIN: Final = 100_000_000_000
"""Smaller numbers are not accepted as ms since 1970 (this one is in March 1973)."""


def read_producer_counts(path: Path, topic: str) -> dict[int, int]:
    """Read a producer's counts of a topic by hour since 1970; ConfigError for unreadable rows."""
    try:
        rows = _read_rows(path)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from error
    counts: Counter[int] = Counter()
    for number, row in enumerate(rows):
        try:
            if row.get("topic") in (None, topic):
                counts[_hour(row["hour"])] += _count(row["count"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ConfigError(f"{path}, row {number}: {row!r} ({error}); {COUNTS_FORMAT}") from None
    if not counts:
        raise ConfigError(f"{path} has no counts of topic {topic!r}; {COUNTS_FORMAT}")
    return dict(counts)


def _read_rows(path: Path) -> list[Any]:
    if path.is_dir() or path.suffix == ".parquet":
        import pyarrow.dataset as ds

        rows: list[Any] = ds.dataset(path, format="parquet").to_table().to_pylist()
        return rows
    text = path.read_text("utf-8").strip()
    try:
        if text.startswith("["):
            array: list[Any] = json.loads(text)
            return array
        return [json.loads(line) for line in text.splitlines() if line.strip()]
    except ValueError as error:
        raise ConfigError(f"{path} is not JSON: {error}; {COUNTS_FORMAT}") from None


def _hour(value: Any) -> int:
    """The hour of a time, which is ISO 8601 text, a datetime or ms since 1970; UTC by default."""
    if isinstance(value, bool):
        raise TypeError("is not a time")
    if isinstance(value, int) and value >= TIMESTAMP_MS_MIN:
        return value // HOUR_MS
    moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    if isinstance(moment, date) and not isinstance(moment, datetime):
        raise TypeError("is a day without an hour")
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return int(aware.timestamp()) * 1000 // HOUR_MS


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError("the count is not a whole number of 0 or more")
    return value


def hour_text(hour: int) -> str:
    """An hour since 1970 as `2026-01-31 12:00`, in UTC."""
    return f"{datetime.fromtimestamp(hour * HOUR_MS / 1000, UTC):%Y-%m-%d %H:00}"
