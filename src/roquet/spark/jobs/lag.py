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

from roquet.admin.reach import Reach
from roquet.log_records import logger
from roquet.model.errors import ConfigError, RoquetError
from roquet.net import loop
from roquet.spark.jobs import sampling
from roquet.spark.jobs.lag_page import html
from roquet.spark.jobs.standings import Done, transform

log = logger(__name__)

SAMPLES: Final = "samples"
PAGE: Final = "lag.html"
STANDINGS: Final = "standings.json"

EVERY_MIN_MS: Final = 100
"""Brokers have other work."""

PAUSE_MS: Final = 200
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


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How far the watching has come."""

    samples: int
    wanted: int
    lag: int
    silent: Sequence[str] = ()


Tell = Callable[[Progress], object]


def main(params: Params) -> Done:
    """Watch until the time is up."""
    return run(params)


def run(
    params: Params, tell: Tell = lambda _: None, ended: Callable[[], bool] = lambda: False
) -> Done:
    """Watch until the time is up, `ended` says so, or Ctrl-C does: then tell what was seen."""
    root = opened(params)
    watch = Watch(params, root)
    try:
        loop.run(watch.run(tell, ended))
    except KeyboardInterrupt:
        if not watch.samples:
            raise
    merge(watch.parts, root)
    rows = table(root)
    since_ms = watch.at_ms - params.for_ms
    recent = rows.filter(pc.greater_equal(rows["at"], pa.scalar(since_ms, rows["at"].type)))
    standings = transform(recent, watch.retention, params.retention_ms)
    done = Done(
        samples=watch.samples,
        at_ms=watch.at_ms,
        standings=standings,
        page=str(root / PAGE),
        namesrv=params.namesrv or "",
    )
    _put(root / STANDINGS, msgspec.json.format(msgspec.json.encode(done)))
    _put(root / PAGE, html(done, rows).encode())
    return done


def opened(params: Params) -> Path:
    """The directory of the table, made when there is none; ConfigError for another one's."""
    if params.every_ms < EVERY_MIN_MS:
        raise ConfigError(f"every {params.every_ms} ms is too often: {EVERY_MIN_MS} ms at least")
    if params.for_ms < params.every_ms:
        raise ConfigError("it is watched for less time than lies between two looks")
    root = Path(params.target).expanduser().absolute()
    if root.exists() and not root.is_dir():
        raise ConfigError(f"{root} is a file: give a directory")
    if root.exists() and any(root.iterdir()) and not (root / SAMPLES).is_dir():
        raise ConfigError(f"{root} is not empty and holds no samples: give another directory")
    (root / SAMPLES).mkdir(parents=True, exist_ok=True)
    return root


def table(root: Path) -> pa.Table:
    """All samples that there are."""
    paths = [str(path) for path in sorted((root / SAMPLES).glob("*.parquet"))]
    if not paths:
        return sampling.SCHEMA.empty_table()
    return ds.dataset(paths, sampling.SCHEMA, format="parquet").to_table()


def merge(parts: Sequence[Path], root: Path) -> None:
    """The files of one run become one.

    A kill between its last two steps leaves samples twice, which change no rate.
    """
    if len(parts) > 1:
        rows = ds.dataset([str(path) for path in parts], sampling.SCHEMA, format="parquet")
        _write(rows.to_table(), root / SAMPLES / f"{parts[0].stem}-{parts[-1].stem}.parquet")
        for path in parts:
            path.unlink()


class Watch:
    """One run: sample after sample."""

    def __init__(self, params: Params, root: Path) -> None:
        self._params, self._root = params, root
        self.parts = list[Path]()
        self.samples = 0
        self.at_ms = 0
        self.retention: Mapping[str, float] = {}

    async def run(self, tell: Tell, ended: Callable[[], bool]) -> None:
        """Until the time is up."""
        async with Reach(self._params.namesrv) as reach:
            self.retention = await sampling.retention(reach)
            wanted = self._params.for_ms // self._params.every_ms + 1
            due_ms = reach.clock.monotonic_ms()
            for _ in range(wanted):
                tell(await self._step(reach, wanted))
                due_ms += self._params.every_ms
                if self.samples < wanted and not await _reached(reach, due_ms, ended):
                    return

    async def _step(self, reach: Reach, wanted: int) -> Progress:
        self.samples += 1
        try:
            found = await sampling.sample(reach, self._params.groups)
        except RoquetError as error:
            if not self.parts:
                raise
            log.warning("%s; this sample is left out", error)
            return Progress(samples=self.samples, wanted=wanted, lag=0)
        self.at_ms = reach.clock.now_ms()
        path = self._root / SAMPLES / f"{self.at_ms}.parquet"
        _write(found.rows, path)
        self.parts.append(path)
        lag = pc.sum(found.rows["lag"]).as_py() or 0
        return Progress(samples=self.samples, wanted=wanted, lag=lag, silent=found.silent)


async def _reached(reach: Reach, due_ms: int, ended: Callable[[], bool]) -> bool:
    """Wait for a time; False when it is ended before."""
    while not ended():
        left_ms = due_ms - reach.clock.monotonic_ms()
        if left_ms <= 0:
            return True
        await reach.clock.sleep(min(left_ms, PAUSE_MS))
    return False


def _write(rows: pa.Table, path: Path) -> None:
    """A file that is whole when it has its name."""
    waiting = path.with_name(f".{uuid4().hex}")
    pq.write_table(rows, waiting)
    waiting.replace(path)


def _put(path: Path, data: bytes) -> None:
    waiting = path.with_name(f".{uuid4().hex}")
    waiting.write_bytes(data)
    waiting.replace(path)
