"""Jobs: the notes of archives' tables, read at intervals, and the lag of each job over time."""

import asyncio
from array import array
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeAlias

import msgspec

from roquet.client.connection.threads import run_in_thread
from roquet.dashboard.sampling.history import expired
from roquet.log_records import logger
from roquet.model.errors import RoquetError
from roquet.net.clock import Clock

log = logger(__name__)

READ_TIMEOUT_S: Final = 8.0
"""Time in which the notes of all tables are read; an object store may be far away."""

PERIOD_MS: Final = 30_000
PAUSE_FACTOR: Final = 9
"""The pause after reading is as many times as long as reading took."""


class JobRow(msgspec.Struct, frozen=True, kw_only=True):
    """A table that a job fills; times are ms since 1970."""

    table: str
    job: str
    topic: str
    commits: int
    """The number of the last commit."""
    committed_ms: int
    looked_ms: int
    """When the job last looked at its topic."""
    lag: int
    """Messages that were not in the table then."""
    lag_s: float
    state: str
    """As `catching up`."""
    overtaken_s: float | None = None
    """Seconds until retention may delete messages that are not in the table; None: unknown."""
    alert: str = ""
    """Sentence about what is wrong and what to do; empty when nothing is."""


JobSource: TypeAlias = Callable[[str], Sequence[JobRow]]
"""Reads the notes of one table, of which several topics may have one; raises RoquetError."""


JobKey: TypeAlias = tuple[str, str, str]
"""Table, topic and job."""


def job_key(row: JobRow) -> JobKey:
    """The key of a job's history."""
    return (row.table, row.topic, row.job)


class JobFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The tables that the dashboard was started with."""

    tables: Sequence[str]
    jobs: Sequence[JobRow]
    unfilled: Sequence[str] = ()
    """Tables that no job has written notes of."""
    problems: Sequence[str] = ()
    """Tables whose notes cannot be read, with the reason."""


async def read_jobs(source: JobSource, tables: Sequence[str]) -> JobFacts:
    """The jobs of some tables; each is read in a thread, all at a time."""

    async def read(table: str) -> Sequence[JobRow] | str:
        try:
            async with asyncio.timeout(READ_TIMEOUT_S):
                return await run_in_thread(partial(source, table), "roquet-jobs")
        except TimeoutError:
            return f"{table}: not read within {READ_TIMEOUT_S:.0f} s"
        except (RoquetError, OSError, ImportError) as error:
            return f"{table}: {error}"

    outcomes = await asyncio.gather(*map(read, tables))
    rows = [row for outcome in outcomes if not isinstance(outcome, str) for row in outcome]
    return JobFacts(
        tables=tables,
        jobs=sorted(rows, key=lambda row: (not row.alert, row.table, row.topic)),
        unfilled=[table for table, rows in zip(tables, outcomes, strict=True) if not rows],
        problems=[outcome for outcome in outcomes if isinstance(outcome, str)],
    )


class JobHistory:
    """Lag of one job over time, the oldest first."""

    def __init__(self) -> None:
        self.times: array[int] = array("q")
        """Times in ms since the epoch."""
        self.lags: array[int] = array("q")

    def add(self, now_ms: int, lag: int) -> None:
        """Add a sample; a clock that was set back begins anew."""
        if self.times and now_ms <= self.times[-1]:
            del self.times[:], self.lags[:]
        self.times.append(now_ms)
        self.lags.append(lag)
        extra = expired(self.times)
        del self.times[:extra], self.lags[:extra]


class JobSampler:
    """Notes of tables in memory; `run` reads them, since an object store may be far away."""

    def __init__(self, source: JobSource, tables: Sequence[str], clock: Clock) -> None:
        self._source = source
        self._tables = tables
        self._clock = clock
        self._histories: dict[JobKey, JobHistory] = {}
        self.latest: JobFacts | None = None
        """None before the first sample."""

    def history(self, row: JobRow) -> JobHistory:
        """Lag of a job over time; empty for one without samples."""
        return self._histories.get(job_key(row)) or JobHistory()

    async def run(self) -> None:
        """Read the notes until cancelled."""
        while True:
            started_ms = self._clock.monotonic_ms()
            try:
                await self.step()
            except Exception:
                log.exception("the notes of tables were not read")
            took_ms = self._clock.monotonic_ms() - started_ms
            await self._clock.sleep(max(PERIOD_MS, PAUSE_FACTOR * took_ms))

    async def step(self) -> JobFacts:
        """Read the notes once, and add what they say."""
        facts = await read_jobs(self._source, self._tables)
        for row in facts.jobs:
            history = self._histories.setdefault(job_key(row), JobHistory())
            history.add(self._clock.now_ms(), row.lag)
        if not facts.problems:
            for key in self._histories.keys() - {job_key(row) for row in facts.jobs}:
                del self._histories[key]
        self.latest = facts
        return facts
