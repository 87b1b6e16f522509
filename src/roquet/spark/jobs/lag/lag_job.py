"""lag: how far all groups are, over time: a table, a page, and who will not catch up.

    done = main(Params(target="lake/lag", every_ms=10_000, for_ms=600_000))
    [one for one in done.standings if not one.outlook.will_catch_up]

Brokers are asked every so often; each answer is a file of the table, so what is known outlives a
kill. At the end these files become one, and the page is made from all that the table has.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final
from uuid import uuid4

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from roquet.admin.client import AdminClient
from roquet.log_records import logger
from roquet.model.errors import ConfigError, RoquetError
from roquet.net import loop
from roquet.spark.jobs.lag import sampling
from roquet.spark.jobs.lag.lag_page import html
from roquet.spark.jobs.lag.lag_summary import LagReport, transform

log = logger(__name__)

SAMPLES: Final = "samples"
PAGE: Final = "lag.html"
STANDINGS: Final = "standings.json"

PERIOD_MIN_MS: Final = 100
"""Brokers have other work."""

STOP_CHECK_MS: Final = 200
"""How often one who waits looks whether it shall end."""


class Params(msgspec.Struct, frozen=True, kw_only=True):
    """What a user wants to watch."""

    target: str
    namesrv: str | None = None
    every_ms: int = 10_000
    for_ms: int = 600_000
    groups: tuple[str, ...] = ()
    """None: all but the system's own."""
    retention_ms: int | None = None
    """For brokers that do not tell how long they keep messages."""


class LagProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far the watching has come."""

    samples: int
    wanted: int
    lag: int
    silent: Sequence[str] = ()


OnLagProgress = Callable[[LagProgress], object]


def main(params: Params) -> LagReport:
    """Watch until the time is up."""
    return run(params)


def run(
    params: Params, tell: OnLagProgress = lambda _: None, ended: Callable[[], bool] = lambda: False
) -> LagReport:
    """Watch until the time is up, `ended` says so, or Ctrl-C does: then tell what was seen."""
    root = open_samples(params)
    watch = LagMonitor(params, root)
    try:
        loop.run(watch.run(tell, ended))
    except KeyboardInterrupt:
        if not watch.samples:
            raise
    merge_files(watch.parts, root)
    rows = read_samples(root)
    since_ms = watch.at_ms - params.for_ms
    recent = rows.filter(pc.greater_equal(rows["at"], pa.scalar(since_ms, rows["at"].type)))
    standings = transform(recent, watch.retention, params.retention_ms)
    done = LagReport(
        samples=watch.samples,
        at_ms=watch.at_ms,
        standings=standings,
        page=str(root / PAGE),
        namesrv=params.namesrv or "",
    )
    _write_bytes(root / STANDINGS, msgspec.json.format(msgspec.json.encode(done)))
    _write_bytes(root / PAGE, html(done, rows).encode())
    return done


def open_samples(params: Params) -> Path:
    """The directory of the table, made when there is none; ConfigError for another one's."""
    if params.every_ms < PERIOD_MIN_MS:
        raise ConfigError(f"every {params.every_ms} ms is too often: {PERIOD_MIN_MS} ms at least")
    if params.for_ms < params.every_ms:
        raise ConfigError("it is watched for less time than lies between two looks")
    root = Path(params.target).expanduser().absolute()
    if root.exists() and not root.is_dir():
        raise ConfigError(f"{root} is a file: give a directory")
    if root.exists() and any(root.iterdir()) and not (root / SAMPLES).is_dir():
        raise ConfigError(f"{root} is not empty and holds no samples: give another directory")
    (root / SAMPLES).mkdir(parents=True, exist_ok=True)
    return root


def read_samples(root: Path) -> pa.Table:
    """All samples that there are."""
    paths = [str(path) for path in sorted((root / SAMPLES).glob("*.parquet"))]
    if not paths:
        return sampling.SCHEMA.empty_table()
    return ds.dataset(paths, sampling.SCHEMA, format="parquet").to_table()


def merge_files(parts: Sequence[Path], root: Path) -> None:
    """The files of one run become one.

    A kill between its last two steps leaves samples twice, which change no rate.
    """
    if len(parts) > 1:
        rows = ds.dataset([str(path) for path in parts], sampling.SCHEMA, format="parquet")
        _write_rows(rows.to_table(), root / SAMPLES / f"{parts[0].stem}-{parts[-1].stem}.parquet")
        for path in parts:
            path.unlink()


class LagMonitor:
    """One run: sample after sample."""

    def __init__(self, params: Params, root: Path) -> None:
        self._params, self._root = params, root
        self.parts = list[Path]()
        self.samples = 0
        self.at_ms = 0
        self.retention: Mapping[str, float] = {}

    async def run(self, tell: OnLagProgress, ended: Callable[[], bool]) -> None:
        """Until the time is up."""
        async with AdminClient(self._params.namesrv) as admin:
            self.retention = await sampling.retention(admin)
            wanted = self._params.for_ms // self._params.every_ms + 1
            due_ms = admin.clock.monotonic_ms()
            for _ in range(wanted):
                tell(await self._step(admin, wanted))
                due_ms += self._params.every_ms
                if self.samples < wanted and not await _wait_until(admin, due_ms, ended):
                    return

    async def _step(self, admin: AdminClient, wanted: int) -> LagProgress:
        self.samples += 1
        try:
            found = await sampling.sample(admin, self._params.groups)
        except RoquetError as error:
            if not self.parts:
                raise
            log.warning("%s; this sample is left out", error)
            return LagProgress(samples=self.samples, wanted=wanted, lag=0)
        self.at_ms = admin.clock.now_ms()
        path = self._root / SAMPLES / f"{self.at_ms}.parquet"
        _write_rows(found.rows, path)
        self.parts.append(path)
        lag = pc.sum(found.rows["lag"]).as_py() or 0
        return LagProgress(samples=self.samples, wanted=wanted, lag=lag, silent=found.silent)


async def _wait_until(admin: AdminClient, due_ms: int, ended: Callable[[], bool]) -> bool:
    """Wait for a time; False when it is ended before."""
    while not ended():
        left_ms = due_ms - admin.clock.monotonic_ms()
        if left_ms <= 0:
            return True
        await admin.clock.sleep(min(left_ms, STOP_CHECK_MS))
    return False


def _write_rows(rows: pa.Table, path: Path) -> None:
    """A file that is whole when it has its name."""
    waiting = path.with_name(f".{uuid4().hex}")
    pq.write_table(rows, waiting)
    waiting.replace(path)


def _write_bytes(path: Path, data: bytes) -> None:
    waiting = path.with_name(f".{uuid4().hex}")
    waiting.write_bytes(data)
    waiting.replace(path)
