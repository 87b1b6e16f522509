"""Group rows: queues and members of a group as a page shows them, with trends."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from roquet.admin.group_info import GroupInfo, GroupQueueInfo
from roquet.dashboard.facts.drawings import Curve, curve
from roquet.dashboard.sampling.history import UNKNOWN, GroupHistory
from roquet.model.names import is_retry
from roquet.model.queue import MessageQueue

WINDOW_MS: Final = 5 * 60_000
"""The newest samples that a trend is made of."""

STILL_PER_S: Final = 0.05
"""A slower change counts as none: a message in 20 seconds."""


class LagTrend(msgspec.Struct, frozen=True, kw_only=True):
    """Change of a lag over the last minutes."""

    per_s: float | None
    """Messages a second, negative while the lag shrinks; None with fewer than two samples."""
    caught_up_ms: int | None
    """Time until the lag is 0 if it goes on so; 0 without lag, None while it does not shrink."""

    @property
    def text(self) -> str:
        """The trend in a word."""
        if self.caught_up_ms == 0:
            return "caught up"
        if self.per_s is None:
            return "not known yet"
        if abs(self.per_s) < STILL_PER_S:
            return "steady"
        return "growing" if self.per_s > 0 else "shrinking"


def lag_trend(times: Sequence[int], lags: Sequence[int]) -> LagTrend:
    """The trend of a lag: its line of least squares over the newest samples.

    `lags` belongs to the newest of `times` (ms), the oldest first; negative ones are not known.
    """
    times = times[len(times) - len(lags) :]
    known = [(time, lag) for time, lag in zip(times, lags, strict=True) if lag >= 0]
    recent = [(time, lag) for time, lag in known if time >= known[-1][0] - WINDOW_MS]
    now = recent[-1][1] if recent else None
    per_s = _slope(recent)
    if now == 0:
        return LagTrend(per_s=per_s, caught_up_ms=0)
    if now is None or per_s is None or per_s > -STILL_PER_S:
        return LagTrend(per_s=per_s, caught_up_ms=None)
    return LagTrend(per_s=per_s, caught_up_ms=round(now / -per_s * 1000))


def _slope(points: Sequence[tuple[int, int]]) -> float | None:
    """Messages a second; None with fewer than two different times."""
    if len(points) < 2:
        return None
    first_ms = points[0][0]
    xs = [(time - first_ms) / 1000 for time, _ in points]
    ys = [float(lag) for _, lag in points]
    x, y = sum(xs) / len(xs), sum(ys) / len(ys)
    spread = sum((one - x) ** 2 for one in xs)
    if not spread:
        return None
    return sum((a - x) * (b - y) for a, b in zip(xs, ys, strict=True)) / spread


SPARK_WIDTH = 90
SPARK_HEIGHT = 18


class GroupRow(msgspec.Struct, frozen=True, kw_only=True):
    """A group in a list; numbers are None before its first sample, and where no broker tells."""

    name: str
    members: int | None = None
    lag: int | None = None
    trend: LagTrend | None = None
    problems: int = 0
    disabled: bool = False
    is_sampled: bool = False
    dead_letters: int | None = None
    """Those that were not sent again; None where no broker tells."""
    spark: Curve | None = None


class QueueRow(msgspec.Struct, frozen=True, kw_only=True):
    """A queue of a group."""

    queue: GroupQueueInfo
    trend: LagTrend
    spark: Curve | None


def group_row(name: str, info: GroupInfo | None) -> GroupRow:
    """Row of a group, from its newest sample; `with_curve` adds what takes time."""
    if info is None:
        return GroupRow(name=name)
    return GroupRow(
        name=name,
        members=info.member_count,
        lag=info.lag,
        problems=len(info.problems),
        disabled=bool(info.disabled_on),
        is_sampled=True,
        dead_letters=info.dead_letters_not_resent,
    )


def with_curve(row: GroupRow, history: GroupHistory) -> GroupRow:
    """The row with its trend and its curve, which only rows on the page need."""
    return msgspec.structs.replace(
        row,
        trend=lag_trend(history.times, history.lags),
        spark=curve(history.lags, width=SPARK_WIDTH, height=SPARK_HEIGHT),
    )


def queue_rows(group: GroupInfo, history: GroupHistory, now_ms: int) -> list[QueueRow]:
    """The queues of a group as they are now, with the trend of each; those of retries are last."""
    rows = []
    for queue in sorted(group.queues, key=lambda one: is_retry(one.topic)):
        lags = history.queue_lags(MessageQueue(queue.topic, queue.broker, queue.queue_id))
        rows.append(
            QueueRow(
                queue=queue,
                trend=trend_until_now(history, lags, queue.lag, now_ms),
                spark=curve(lags, width=SPARK_WIDTH, height=SPARK_HEIGHT),
            )
        )
    return rows


def trend_until_now(
    history: GroupHistory, lags: Sequence[int], lag: int | None, now_ms: int
) -> LagTrend:
    """The trend of samples and of a lag that was asked for after them, which a page shows."""
    return lag_trend([*history.times, now_ms], [*lags, UNKNOWN if lag is None else lag])


def lag_by_topic(queues: Sequence[GroupQueueInfo]) -> Mapping[str, int]:
    """Lag of a group in each of its topics, the largest first."""
    lags: dict[str, int] = {}
    for queue in queues:
        lags[queue.topic] = lags.get(queue.topic, 0) + queue.lag
    return dict(sorted(lags.items(), key=lambda item: -item[1]))
