"""A table of latest states under kills: the last change of each key, and no key that was deleted.

The topic is that of the archives: a change of each key in turn, every seventh of which deletes it.
In directories every second table is one of Iceberg; in an S3 server those are a kind of their own.
"""

from typing import TYPE_CHECKING, ClassVar

from bench.fill import TOMBSTONE_EVERY
from bench.lib.kill_archive import COLUMNS, KEYS, TOPIC, Archive, Place, place_of
from bench.lib.kill_stage import Stage
from bench.lib.kill_store import ICEBERG, ObjectArchive, ObjectIceberg, ObjectServer

if TYPE_CHECKING:
    from roquet.lake.table import ArchiveTable

MATERIALIZE = "materialize"

MATERIALIZE_ICEBERG = "materialize-iceberg"
"""In an S3 server."""

BUCKETS = 8


class LatestStates(Archive):
    """One round: the latest change of each key into a new table."""

    job: ClassVar = MATERIALIZE
    columns: ClassVar = ["key", "stored_at", *COLUMNS]

    def __init__(self, stage: Stage, kind: str, number: int, messages: int) -> None:
        super().__init__(stage, ICEBERG if number % 2 else kind, number, messages)

    def options(self) -> list[str]:
        kind = ICEBERG if self._kind == ICEBERG else "delta"
        return ["--kind", kind, "--columns", ",".join(self.columns), "--buckets", str(BUCKETS)]

    def wanted(self) -> set[Place]:
        """The last change of each key, unless it deletes it."""
        last = range(max(self.messages - KEYS, 0), self.messages)
        return {place_of(number) for number in last if number % TOMBSTONE_EVERY}


class ObjectLatestStates(LatestStates, ObjectArchive):
    """One round: the same into a new table of an S3 server."""

    def __init__(
        self, stage: Stage, server: ObjectServer, kind: str, number: int, messages: int
    ) -> None:
        ObjectArchive.__init__(self, stage, server, kind, number, messages)

    def opened(self) -> "ArchiveTable":
        from roquet.spark.jobs.materialize.materialize_job import Params, open_state

        columns = tuple(self.columns)
        return open_state(Params(topic=TOPIC, target=self.target, columns=columns, buckets=BUCKETS))


class ObjectIcebergStates(LatestStates, ObjectIceberg):
    """One round: the same into a new Iceberg table of the server, whose catalog is SQLite."""

    def __init__(
        self, stage: Stage, server: ObjectServer, kind: str, number: int, messages: int
    ) -> None:
        ObjectIceberg.__init__(self, stage, server, kind, number, messages)
        self._kind = ICEBERG

    def options(self) -> list[str]:
        return [*super().options(), "--catalog", self._catalog()["uri"]]

    def opened(self) -> "ArchiveTable":
        from roquet.spark.jobs.materialize.materialize_job import Params, open_state

        return open_state(
            Params(
                topic=TOPIC,
                target=self.target,
                kind=ICEBERG,
                columns=tuple(self.columns),
                buckets=BUCKETS,
                catalog=self._catalog(),
            )
        )
