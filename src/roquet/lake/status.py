"""Job status: what the job that fills a table last knew of its lag, beside the table's data.

    TABLE/_roquet/status/TOPIC.json

It is for operators, dashboards and schedulers. No job reads its offsets back: those are in the
table's commits. The topic is in the name because an Iceberg directory may hold several tables.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from roquet.lake.files.file_tree import file_tree
from roquet.lake.files.staging import HIDDEN
from roquet.lake.objects.object_location import TableLocation
from roquet.lake.objects.object_store import open_source
from roquet.lake.open_table import table_location
from roquet.lake.queue_offsets import OffsetsJson
from roquet.model.errors import ConfigError

DIRECTORY: Final = f"{HIDDEN}/status"

_UNUSUAL: Final = re.compile(r"[^\w.-]", re.ASCII)

POINTS_MAX: Final = 32
"""Points that are kept: enough for a rate, and few bytes."""

SIZE_MAX: Final = 16 * 1024 * 1024
"""A longer file is no status of ours. Topics with thousands of queues have some 100 KiB."""


class LagPoint(msgspec.Struct, frozen=True, kw_only=True):
    """A table's lag at one time; numbers of messages are sums over all queues."""

    at_ms: int
    committed: int
    """The sum of the table's offsets."""
    waiting: int = 0
    """Messages in the topic that are not in the table."""
    lost: int = 0
    """Messages that were deleted before they were in the table."""
    oldest_ms: int | None = None
    """When the first message that is not in the table was stored; None when there is none."""


class JobStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Lag and offsets of a table as its job last knew them.

    Times are ms since 1970, by the driver's clock.
    """

    job: str
    """archive or materialize."""
    topic: str
    number: int
    """The number of the table's last commit."""
    committed_ms: int
    offsets: OffsetsJson
    """The offset of the next message by queue."""
    points: tuple[LagPoint, ...]
    """The last one is of now, earlier ones give rates."""
    retention_s: float | None = None
    """How long the brokers keep messages, the least of them; None when none says so."""
    brokers_away: tuple[str, ...] = ()
    """Brokers that did not answer: what waits there is unknown, and not in the last point."""
    format: int = 1

    @property
    def now(self) -> LagPoint:
        """The last point."""
        return self.points[-1]

    @property
    def lag(self) -> int:
        """Messages in the topic that are not in the table."""
        return self.now.waiting

    @property
    def lag_s(self) -> float:
        """The age of the first message that is not in the table, in seconds; 0 without one."""
        oldest_ms = self.now.oldest_ms
        return 0.0 if oldest_ms is None else max(self.now.at_ms - oldest_ms, 0) / 1000


def status_path(topic: str) -> str:
    """The path of a topic's status, relative to the table; names keep plain letters alone."""
    name = _UNUSUAL.sub(lambda found: f"={ord(found[0]):x}=", topic)
    return f"{DIRECTORY}/{name}.json"


def write_status(root: TableLocation, status: JobStatus) -> None:
    """Replace the status of a table. Raises OSError or StorageFailed."""
    data = msgspec.json.format(msgspec.json.encode(status))
    file_tree(root).put(status_path(status.topic), data)


def find_status(root: TableLocation, topic: str) -> JobStatus | None:
    """The status of a topic's table; None when there is none that can be read."""
    return _read(root, status_path(topic))


def read_statuses(target: str, storage: Mapping[str, str] = {}) -> list[JobStatus]:
    """The statuses of the tables at a path or URL by topic; ConfigError when there is none."""
    root = table_location(target, storage)
    paths = file_tree(root).list_directory(DIRECTORY)
    found = [_read(root, path) for path in paths if path.endswith(".json")]
    statuses = [status for status in found if status is not None and status.points]
    if not statuses:
        raise ConfigError(
            f"{target} has no status: no archive has filled it, or none since statuses are kept"
        )
    return statuses


def _read(root: TableLocation, path: str) -> JobStatus | None:
    try:
        status = msgspec.json.decode(_bytes_of(root, path), type=JobStatus)
    except (FileNotFoundError, NotADirectoryError, msgspec.DecodeError):
        return None
    return status if status.points else None


def _bytes_of(root: TableLocation, path: str) -> bytes:
    if isinstance(root, Path):
        with (root / path).open("rb") as file:
            return file.read(SIZE_MAX)
    with open_source(root.file(path), root.options) as stream:
        data: bytes = stream.read(SIZE_MAX)
        return data
