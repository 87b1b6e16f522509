"""Lag job: samples the consumer lag of all groups over time, and reports who will not catch up.

    report = main(Params(target="lake/lag", every_ms=10_000, for_ms=600_000))
    [group for group in report.standings if not group.outlook.will_catch_up]

Brokers are asked periodically. Each sample is a file of the table, so it survives a kill. At the
end the files of the run are merged into one, and the page is made from the whole table. The table
lies in a directory or in an object store.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from roquet.admin.client import AdminClient
from roquet.lake.files.file_tree import FileTree, file_tree, parquet_bytes
from roquet.lake.lag import sampling
from roquet.lake.lag.lag_summary import LagReport, transform
from roquet.lake.objects.object_location import TableLocation
from roquet.lake.objects.object_store import ObjectStore
from roquet.lake.open_table import table_location
from roquet.log_records import logger
from roquet.model.errors import ConfigError, RoquetError
from roquet.net import loop

log = logger(__name__)

SAMPLES: Final = "samples"
PAGE: Final = "lag.html"
STANDINGS: Final = "standings.json"

PERIOD_MIN_MS: Final = 100
"""Shortest period between samples, to limit the load on brokers."""

STOP_CHECK_MS: Final = 200
"""How often the job checks between samples whether it shall stop."""


class Params(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters of the lag job."""

    target: str
    namesrv: str | None = None
    every_ms: int = 10_000
    for_ms: int = 600_000
    groups: tuple[str, ...] = ()
    """Empty: all groups but the system's own."""
    retention_ms: int | None = None
    """Assumed for brokers that do not say how long they keep messages."""
    storage: Mapping[str, str] = {}
    """Options of the object store of `target`; the environment gives those that are not here."""


class LagProgress(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of a run."""

    samples: int
    wanted: int
    lag: int
    """Messages that wait for all groups together."""
    silent: Sequence[str] = ()
    """Brokers that did not answer the last sample."""


OnLagProgress = Callable[[LagProgress], object]


def main(params: Params) -> LagReport:
    """Sample until the time is up."""
    return run(params)


def run(
    params: Params,
    on_progress: OnLagProgress = lambda _: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> LagReport:
    """Sample until the time is up, `should_stop` returns True or Ctrl-C comes; then report."""
    from roquet.lake.lag.lag_page import html  # with matplotlib, which the rest need not have

    root = open_samples(params)
    store = file_tree(root)
    monitor = LagMonitor(params, store)
    try:
        loop.run(monitor.run(on_progress, should_stop))
    except KeyboardInterrupt:
        if not monitor.samples:
            raise
    merge_files(monitor.files, store)
    rows = read_samples(root)
    since_ms = monitor.at_ms - params.for_ms
    recent = rows.filter(pc.greater_equal(rows["at"], pa.scalar(since_ms, rows["at"].type)))
    report = LagReport(
        samples=monitor.samples,
        at_ms=monitor.at_ms,
        standings=transform(recent, monitor.retention, params.retention_ms),
        page=store.address(PAGE),
        namesrv=params.namesrv or "",
    )
    store.put(STANDINGS, msgspec.json.format(msgspec.json.encode(report)))
    store.put(PAGE, html(report, rows).encode())
    return report


def open_samples(params: Params) -> TableLocation:
    """The location of the table, new or with samples; ConfigError when it holds something else."""
    if params.every_ms < PERIOD_MIN_MS:
        raise ConfigError(f"every {params.every_ms} ms is too often: {PERIOD_MIN_MS} ms at least")
    if params.for_ms < params.every_ms:
        raise ConfigError(
            f"the time of sampling, {params.for_ms} ms, is shorter than the {params.every_ms} ms "
            "between two samples"
        )
    root = table_location(params.target, params.storage)
    store = file_tree(root)
    if isinstance(store, ObjectStore):
        store.check_bucket()
    if isinstance(root, Path) and root.exists() and not root.is_dir():
        raise ConfigError(f"{root} is a file: give a directory")
    names = store.names()
    if names and SAMPLES not in names:
        raise ConfigError(f"{root} is not empty and holds no samples: give another directory")
    if isinstance(root, Path):
        (root / SAMPLES).mkdir(parents=True, exist_ok=True)
    return root


def read_samples(root: TableLocation) -> pa.Table:
    """Read all samples of the table."""
    store = file_tree(root)
    files = [path for path in store.list_directory(SAMPLES) if path.endswith(".parquet")]
    return store.rows(files, sampling.SCHEMA)


def merge_files(files: Sequence[str], store: FileTree) -> None:
    """Merge the files of one run into one; `files` are their paths in the store.

    A kill before all of them are deleted leaves samples twice, which changes no rate.
    """
    if len(files) > 1:
        first, last = (PurePosixPath(path).stem for path in (files[0], files[-1]))
        rows = store.rows(files, sampling.SCHEMA)
        store.put(f"{SAMPLES}/{first}-{last}.parquet", parquet_bytes(rows))
        for path in files:
            store.remove(path)


class LagMonitor:
    """One run, which writes sample after sample."""

    def __init__(self, params: Params, store: FileTree) -> None:
        self._params, self._store = params, store
        self.files = list[str]()
        """The paths in the store of the files that this run has written."""
        self.samples = 0
        self.at_ms = 0
        """The time of the last sample, in ms since 1970."""
        self.retention: Mapping[str, float] = {}
        """Seconds for which each broker keeps messages."""

    async def run(self, on_progress: OnLagProgress, should_stop: Callable[[], bool]) -> None:
        """Sample until the time is up."""
        async with AdminClient(self._params.namesrv) as admin:
            self.retention = await sampling.retention(admin)
            wanted = self._params.for_ms // self._params.every_ms + 1
            due_ms = admin.clock.monotonic_ms()
            for _ in range(wanted):
                on_progress(await self._step(admin, wanted))
                due_ms += self._params.every_ms
                if self.samples < wanted and not await _wait_until(admin, due_ms, should_stop):
                    return

    async def _step(self, admin: AdminClient, wanted: int) -> LagProgress:
        """Write one sample; one that fails is left out, but for the first."""
        self.samples += 1
        try:
            sample = await sampling.sample(admin, self._params.groups)
            at_ms = admin.clock.now_ms()
            path = f"{SAMPLES}/{at_ms}.parquet"
            self._store.put(path, parquet_bytes(sample.rows))
        except RoquetError as error:
            if not self.files:
                raise
            log.warning("%s; this sample is left out", error)
            return LagProgress(samples=self.samples, wanted=wanted, lag=0)
        self.at_ms = at_ms
        self.files.append(path)
        lag = pc.sum(sample.rows["lag"]).as_py() or 0
        return LagProgress(samples=self.samples, wanted=wanted, lag=lag, silent=sample.silent)


async def _wait_until(admin: AdminClient, due_ms: int, should_stop: Callable[[], bool]) -> bool:
    """Wait for a time; False when the run is stopped before."""
    while not should_stop():
        left_ms = due_ms - admin.clock.monotonic_ms()
        if left_ms <= 0:
            return True
        await admin.clock.sleep(min(left_ms, STOP_CHECK_MS))
    return False
