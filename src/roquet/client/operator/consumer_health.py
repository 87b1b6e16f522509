"""Consumer health: gathers what one consumer knows of its brokers, queues and handlers."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec.structs import asdict

from roquet.client.connection.session import Session
from roquet.client.reading.handler_pool import HandlerPool
from roquet.rules.health import ConsumerHealth, StuckHandler

if TYPE_CHECKING:  # few consumers need both
    from roquet.client.popping.pop_loop import PopLoop
    from roquet.client.reading.queue_reader import QueueReader

HealthSource: TypeAlias = "QueueReader | PopLoop"


def consumer_health(
    session: Session,
    sources: Sequence[HealthSource],
    pool: HandlerPool[Any] | None,
    *,
    waiting: int,
    has_queues: bool,
    handled_ms: Iterable[int],
    stuck_ms: int,
) -> ConsumerHealth:
    """Health now; `handled_ms` are the times at which handling has made progress."""
    now_ms = session.config.clock.monotonic_ms()
    lags = [source.lag for source in sources]
    known = [lag for lag in lags if lag is not None]
    answers = [source.answered_ms for source in sources if source.answered_ms is not None]
    ages = [] if pool is None else pool.ages(now_ms)
    stuck = sorted(((ms, repr(m)) for m, ms in ages if m and ms >= stuck_ms), reverse=True)
    failures = [source.failure for source in sources if source.failure is not None]
    return ConsumerHealth(
        **asdict(session.health(*failures)),
        has_queues=has_queues,
        queues=len(sources),
        lag=sum(known) if len(known) == len(lags) else None,
        waiting=waiting,
        answered_s=_seconds(now_ms, answers),
        silent_s=max((source.silence_ms(now_ms) for source in sources), default=0) / 1000,
        handled_s=_seconds(now_ms, [*handled_ms]),
        handlers=len(ages),
        stuck=tuple(StuckHandler(text, ms / 1000) for ms, text in stuck),
    )


def _seconds(now_ms: int, times_ms: Sequence[int]) -> float | None:
    return (now_ms - max(times_ms)) / 1000 if times_ms else None
