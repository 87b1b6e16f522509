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

from roquet.lake.columns.body_columns import BodyField, check_format, file_schema
from roquet.lake.columns.body_schemas import BodySchema
from roquet.lake.columns.partition_scheme import number_within
from roquet.lake.files.disk import Disk
from roquet.lake.kinds.delta.delta_table import DeltaTable
from roquet.lake.kinds.iceberg.iceberg_table import IcebergTable
from roquet.lake.objects.object_location import TableLocation
from roquet.lake.open_table import check_kind
from roquet.lake.schema import check_names
from roquet.lake.states.buckets import BUCKETS, BUCKETS_MAX, COLUMN, CRC32, MURMUR3, KeyBuckets
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

OWN_COLUMNS: Final = frozenset({COLUMN, DELETED})
"""Columns of such tables that no field of a body can have the name of."""

_DELETED_FIELD: Final = pa.field(DELETED, pa.bool_())

KEY: Final = "key"
PROPERTY: Final = "property:"


class StateIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """Identity of a table of latest states; written when it is created, never changed.

    In a wanted identity an empty text, no columns and 0 buckets stand for what was not said.
    """

    topic: str = ""
    columns: tuple[str, ...] = ()
    key: str = ""
    """`key` for the messages' first key, `property:NAME` for one of their properties."""
    deletes: str = ""
    """`tombstone` removes the rows of deleted keys, `keep` marks them."""
    buckets: int = 0
    bucket_hash: str = CRC32
    """How keys are divided by bucket: `crc32`, or `murmur3` as Iceberg defines it."""
    body_format: str = ""
    body_source: BodySchema | None = None
    infer_body: bool = False
    body_prefix: str = ""
    """All four as in the identity of an archive."""
    format: int = 2

    @property
    def archive_identity(self) -> ArchiveIdentity:
        """The part that archives have, too."""
        names = ("topic", "columns", "body_format", "body_source", "infer_body", "body_prefix")
        return ArchiveIdentity(**{name: getattr(self, name) for name in names})

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

    def file_schema(self, fields: Sequence[BodyField] = ()) -> pa.Schema:
        """The columns of the table's files, with those of fields of the bodies."""
        columns = file_schema(self.columns, fields if self.body_format else None)
        return columns.append(_DELETED_FIELD) if self.keeps_deleted else columns

    def change_schema(self, fields: Sequence[BodyField] | None = None) -> pa.Schema:
        """The columns of changes, all of which say whether they delete.

        Without fields, not even an empty sequence of them, bodies are not parsed yet.
        """
        return file_schema(self.columns, fields).append(_DELETED_FIELD)


class StateTable(DeltaTable):
    """A Delta table of latest states, in a directory or an object store."""

    own_columns = OWN_COLUMNS

    def __init__(
        self, root: TableLocation, wanted: StateIdentity, disk: Disk | None = None
    ) -> None:
        self.settings = wanted
        super().__init__(root, wanted.archive_identity, disk)
        if not self.says_statistics:  # by an earlier Roquet; nothing else maintains such a table
            self.complete_statistics()

    @property
    def division(self) -> KeyBuckets:
        """How rows are divided among files."""
        return self.settings.key_buckets

    def row_schema(self) -> pa.Schema:
        """The columns of the table's files."""
        return self.settings.file_schema(self.body_fields())

    def commit(self, commit: TableCommit) -> None:
        """Publish a commit: its files have other rows than those that they replace."""
        super().commit(msgspec.structs.replace(commit, is_update=True))

    def _agree(self, wanted: ArchiveIdentity, log: "Log | None") -> ArchiveIdentity:  # noqa: ARG002
        existing = None if log is None else settings_of(log, self._root)
        self.settings = agreed_settings(self.settings, existing)
        return self.settings.archive_identity

    def _description(self, identity: ArchiveIdentity) -> Mapping[str, object]:  # noqa: ARG002
        return {"roquet_state": self.settings}

    def _schema(self, identity: ArchiveIdentity) -> pa.Schema:  # noqa: ARG002
        return self.settings.file_schema().append(pa.field(COLUMN, pa.int32()))

    def _partition_columns(self, identity: ArchiveIdentity) -> list[str]:  # noqa: ARG002
        return [COLUMN]


class IcebergStateTable(IcebergTable):
    """An Iceberg table of latest states, in a directory or an object store."""

    own_columns = OWN_COLUMNS

    def __init__(
        self,
        root: TableLocation,
        wanted: StateIdentity,
        *,
        name: str = "",
        catalog: Mapping[str, str] | None = None,
    ) -> None:
        self.settings = msgspec.structs.replace(wanted, bucket_hash=MURMUR3)
        super().__init__(root, wanted.archive_identity, name=name, catalog=catalog)

    @property
    def division(self) -> KeyBuckets:
        """How rows are divided among files."""
        return self.settings.key_buckets

    def row_schema(self) -> pa.Schema:
        """The columns of the table's files."""
        return self.settings.file_schema(self.body_fields())

    def _agree(self, wanted: ArchiveIdentity, table: "IceTable | None") -> ArchiveIdentity:  # noqa: ARG002
        existing = None
        if table is not None:
            text = table.properties.get(STATE_IDENTITY)
            if text is None:
                raise ConfigError(
                    f"{self._where} is not one that `roquet spark materialize` made: give another "
                    "name (--table)"
                )
            existing = msgspec.json.decode(text, type=StateIdentity)
        self.settings = agreed_settings(self.settings, existing)
        return self.settings.archive_identity

    def _identity_property(self, identity: ArchiveIdentity) -> tuple[str, object]:  # noqa: ARG002
        return STATE_IDENTITY, self.settings

    def _schema(self, identity: ArchiveIdentity) -> pa.Schema:  # noqa: ARG002
        return self.settings.file_schema()

    def _set_layout(self, making: "Transaction", identity: ArchiveIdentity) -> None:  # noqa: ARG002
        from pyiceberg.transforms import BucketTransform

        with making.update_spec() as spec:
            spec.add_field("key", BucketTransform[str](self.settings.buckets), COLUMN)

    def _partition_fields(self) -> Sequence[tuple[str, str]]:
        return [("key", f"bucket[{self.settings.buckets}]")]

    def _record(self, file: DataFile) -> "Record":
        from pyiceberg.typedef import Record

        return Record(number_within(file.partition, COLUMN))


def open_state_table(
    kind: str,
    root: TableLocation,
    wanted: StateIdentity,
    *,
    name: str = "",
    catalog: Mapping[str, str] = {},
) -> StateTable | IcebergStateTable:
    """The table of this kind, created when there is none.

    Raises ConfigError when the table is another one than is wanted.
    """
    check_wanted(wanted)  # before a directory is made
    if kind == "iceberg":
        check_kind(root, kind)
        return IcebergStateTable(root, wanted, name=name, catalog=catalog)
    if name or catalog:
        raise ConfigError("a name and a catalog are for Iceberg tables, not for delta")
    return StateTable(root, wanted)


def check_wanted(wanted: StateIdentity) -> None:
    """Raise ConfigError for settings that no table can have."""
    if wanted.key != KEY and wanted.key and not wanted.key.removeprefix(PROPERTY).strip():
        raise ConfigError("--key property:NAME: the name of the property is missing")
    if wanted.key not in ("", KEY) and not wanted.key.startswith(PROPERTY):
        raise ConfigError(
            f"--key {wanted.key}: rows are told apart by `key`, the messages' first key, or by one "
            f"of their properties, property:{wanted.key}"
        )
    if wanted.deletes not in ("", *DELETES):
        raise ConfigError(f"--deletes {wanted.deletes}: give {' or '.join(DELETES)}")
    if not 0 <= wanted.buckets <= BUCKETS_MAX:
        raise ConfigError(f"--buckets {wanted.buckets}: from 1 to {BUCKETS_MAX}")
    for name in REQUIRED_COLUMNS:
        if wanted.columns and name not in check_names(wanted.columns):
            raise ConfigError(f"a table of latest states needs the column {name!r}: add it")


def settings_of(log: "Log", root: TableLocation) -> StateIdentity:
    """The identity in a Delta table; ConfigError when it is no table of latest states."""
    try:
        return msgspec.json.decode(log.metadata().description or "", type=_Note).roquet_state
    except msgspec.MsgspecError:
        raise ConfigError(
            f"{root} is a Delta table, but not one that `roquet spark materialize` made: give "
            "another path"
        ) from None


def agreed_settings(wanted: StateIdentity, existing: StateIdentity | None) -> StateIdentity:
    """The identity of an existing table, or of a new one with defaults for what was not said.

    Raises ConfigError when the existing table is another one than is wanted.
    """
    if existing is None:
        made = msgspec.structs.replace(
            wanted,
            columns=wanted.columns or DEFAULT_COLUMNS,
            key=wanted.key or KEY,
            deletes=wanted.deletes or DELETES[0],
            buckets=wanted.buckets or BUCKETS,
            format=3 if wanted.body_format else 2,
        )
        has_source = made.body_source is not None
        check_format(made.body_format, made.columns, has_source=has_source)
        return made
    if existing.format > FORMAT:
        raise ConfigError(f"the table was written by a newer Roquet (format {existing.format})")
    for name in ("topic", "key", "deletes", "buckets", "columns", "body_format", "body_prefix"):
        have, want = getattr(existing, name), getattr(wanted, name)
        if want and have != want:
            raise ConfigError(
                f"the table was made with {name} {_text(have)}, not {_text(want)}: say the same "
                "or nothing, or give another path"
            )
    return existing


class _Note(msgspec.Struct):
    """A table's description."""

    roquet_state: StateIdentity


def _text(value: object) -> str:
    return ",".join(value) if isinstance(value, tuple) else str(value or "none")
