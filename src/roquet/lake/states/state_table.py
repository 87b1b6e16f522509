"""State table: a table with one row for each key, and what it remembers of itself.

It is written as an archive is: one entry of Delta's log, or one snapshot of Iceberg, publishes
files, removed files and offsets. Its description, or a property of the table, says which topic it
is of, which key its rows have and what becomes of deleted ones. pyiceberg's own upsert and delete
would do all of that on the driver.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa

from roquet.lake.columns.partition_scheme import number_within
from roquet.lake.columns.partitioning import schema_of
from roquet.lake.files.disk import Disk
from roquet.lake.kinds.delta.delta_table import DeltaTable
from roquet.lake.kinds.iceberg.iceberg_table import IcebergTable
from roquet.lake.objects.object_location import TableLocation
from roquet.lake.schema import check_names
from roquet.lake.states.buckets import BUCKETS_MAX, COLUMN, CRC32, MURMUR3, KeyBuckets
from roquet.lake.table import FORMAT, ArchiveIdentity, DataFile, TableCommit
from roquet.model.errors import ConfigError

if TYPE_CHECKING:
    from deltalake import DeltaTable as Log
    from pyiceberg.table import Table as IceTable
    from pyiceberg.table import Transaction
    from pyiceberg.typedef import Record

REQUIRED_COLUMNS: Final = ("key", "broker", "queue_id", "queue_offset", "stored_at")
"""Columns that say which change a row is of, and whether another one is later."""

DEFAULT_COLUMNS: Final = (*REQUIRED_COLUMNS, "born_at", "tag", "body", "properties")

DELETED: Final = "is_deleted"
"""Column of tables that keep the rows of deleted keys."""

DELETES: Final = ("tombstone", "keep")

STATE_IDENTITY: Final = "roquet.state-table"
"""The property of an Iceberg table with the identity."""

KEY: Final = "key"
PROPERTY: Final = "property:"


class StateIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """Identity of a table of latest states; written when it is created, never changed."""

    topic: str
    columns: tuple[str, ...]
    key: str
    """`key` for the messages' first key, `property:NAME` for one of their properties."""
    deletes: str
    """`tombstone` removes the rows of deleted keys, `keep` marks them."""
    buckets: int
    bucket_hash: str = CRC32
    """How keys are divided by bucket: `crc32`, or `murmur3` as Iceberg defines it."""
    format: int = FORMAT

    @property
    def key_property(self) -> str | None:
        """The property with the key; None for the messages' own key."""
        return self.key.removeprefix(PROPERTY) if self.key.startswith(PROPERTY) else None

    @property
    def key_buckets(self) -> KeyBuckets:
        """The division of rows by bucket."""
        return KeyBuckets(count=self.buckets, key_hash=self.bucket_hash)

    @property
    def keeps_deleted(self) -> bool:
        """Whether the rows of deleted keys stay, marked."""
        return self.deletes == "keep"

    @property
    def schema(self) -> pa.Schema:
        """The columns of the table's files."""
        columns = schema_of(self.columns)
        return columns.append(pa.field(DELETED, pa.bool_())) if self.keeps_deleted else columns

    @property
    def change_schema(self) -> pa.Schema:
        """The columns of changes, all of which say whether they delete."""
        return schema_of(self.columns).append(pa.field(DELETED, pa.bool_()))


class StateTable(DeltaTable):
    """A Delta table of latest states, in a directory or an object store."""

    def __init__(
        self, root: TableLocation, wanted: StateIdentity, disk: Disk | None = None
    ) -> None:
        self.settings = wanted
        super().__init__(root, ArchiveIdentity(topic=wanted.topic, columns=wanted.columns), disk)
        if not self.says_statistics:  # by an earlier Roquet; nothing else maintains such a table
            self.complete_statistics()

    def commit(self, commit: TableCommit) -> None:
        """Publish a commit: its files have other rows than those that they replace."""
        super().commit(msgspec.structs.replace(commit, is_update=True))

    def _agree(self, wanted: ArchiveIdentity, log: "Log | None") -> ArchiveIdentity:  # noqa: ARG002
        if log is not None:
            self.settings = agreed_settings(self.settings, settings_of(log, self._root))
        return ArchiveIdentity(topic=self.settings.topic, columns=self.settings.columns)

    def _description(self, identity: ArchiveIdentity) -> Mapping[str, object]:  # noqa: ARG002
        return {"roquet_state": self.settings}

    def _schema(self, identity: ArchiveIdentity) -> pa.Schema:  # noqa: ARG002
        return self.settings.schema.append(pa.field(COLUMN, pa.int32()))

    def _partition_columns(self, identity: ArchiveIdentity) -> list[str]:  # noqa: ARG002
        return [COLUMN]


class IcebergStateTable(IcebergTable):
    """An Iceberg table of latest states, in a directory or an object store."""

    def __init__(
        self,
        root: TableLocation,
        wanted: StateIdentity,
        *,
        name: str = "",
        catalog: Mapping[str, str] | None = None,
    ) -> None:
        self.settings = msgspec.structs.replace(wanted, bucket_hash=MURMUR3)
        identity = ArchiveIdentity(topic=wanted.topic, columns=wanted.columns)
        super().__init__(root, identity, name=name, catalog=catalog)

    def _agree(self, wanted: ArchiveIdentity, table: "IceTable | None") -> ArchiveIdentity:  # noqa: ARG002
        if table is not None:
            text = table.properties.get(STATE_IDENTITY)
            if text is None:
                raise ConfigError(
                    f"{self._where} is not one that `roquet spark materialize` made: give another "
                    "name (--table)"
                )
            existing = msgspec.json.decode(text, type=StateIdentity)
            self.settings = agreed_settings(self.settings, existing)
        return ArchiveIdentity(topic=self.settings.topic, columns=self.settings.columns)

    def _identity_property(self, identity: ArchiveIdentity) -> tuple[str, object]:  # noqa: ARG002
        return STATE_IDENTITY, self.settings

    def _schema(self, identity: ArchiveIdentity) -> pa.Schema:  # noqa: ARG002
        return self.settings.schema

    def _set_layout(self, making: "Transaction", identity: ArchiveIdentity) -> None:  # noqa: ARG002
        from pyiceberg.transforms import BucketTransform

        with making.update_spec() as spec:
            spec.add_field("key", BucketTransform[str](self.settings.buckets), COLUMN)

    def _partition_fields(self) -> Sequence[tuple[str, str]]:
        return [("key", f"bucket[{self.settings.buckets}]")]

    def _record(self, file: DataFile) -> "Record":
        from pyiceberg.typedef import Record

        return Record(number_within(file.partition, COLUMN))


def state_identity(
    topic: str, *, key: str, deletes: str, buckets: int, columns: tuple[str, ...] = ()
) -> StateIdentity:
    """The identity of a new table; ConfigError for arguments that cannot be used."""
    if key != KEY and not key.removeprefix(PROPERTY).strip():
        raise ConfigError("--key property:NAME: the name of the property is missing")
    if key != KEY and not key.startswith(PROPERTY):
        raise ConfigError(
            f"--key {key}: rows are told apart by `key`, the messages' first key, or by one of "
            f"their properties, property:{key}"
        )
    if deletes not in DELETES:
        raise ConfigError(f"--deletes {deletes}: give {' or '.join(DELETES)}")
    if not 1 <= buckets <= BUCKETS_MAX:
        raise ConfigError(f"--buckets {buckets}: from 1 to {BUCKETS_MAX}")
    chosen = check_names(columns or DEFAULT_COLUMNS)
    for name in REQUIRED_COLUMNS:
        if name not in chosen:
            raise ConfigError(f"a table of latest states needs the column {name!r}: add it")
    return StateIdentity(topic=topic, columns=chosen, key=key, deletes=deletes, buckets=buckets)


def settings_of(log: "Log", root: TableLocation) -> StateIdentity:
    """The identity in a Delta table; ConfigError when it is no table of latest states."""
    try:
        return msgspec.json.decode(log.metadata().description or "", type=_Note).roquet_state
    except msgspec.MsgspecError:
        raise ConfigError(
            f"{root} is a Delta table, but not one that `roquet spark materialize` made: give "
            "another path"
        ) from None


def agreed_settings(wanted: StateIdentity, existing: StateIdentity) -> StateIdentity:
    """The existing table's identity; ConfigError when another one is wanted."""
    if existing.format > FORMAT:
        raise ConfigError(f"the table was written by a newer Roquet (format {existing.format})")
    for name in ("topic", "key", "deletes", "buckets", "columns"):
        have, want = getattr(existing, name), getattr(wanted, name)
        if have != want:
            raise ConfigError(
                f"the table was made with {name} {_text(have)}, not {_text(want)}: say the same, "
                "or give another path"
            )
    return existing


class _Note(msgspec.Struct):
    """A table's description."""

    roquet_state: StateIdentity


def _text(value: object) -> str:
    return ",".join(value) if isinstance(value, tuple) else str(value)
