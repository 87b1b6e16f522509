"""Iceberg state table: the latest states as a table of an Iceberg catalog, by buckets of the key.

It is written as an archive is: one snapshot replaces the files of the buckets that have changes
and moves the offsets. pyiceberg's own upsert and delete would do all of that on the driver.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa

from roquet.lake.columns.partition_scheme import number_within
from roquet.lake.kinds.iceberg.iceberg_table import IcebergTable
from roquet.lake.objects.object_location import TableLocation
from roquet.lake.states.buckets import COLUMN, MURMUR3
from roquet.lake.states.state_table import StateIdentity, agreed_settings
from roquet.lake.table import ArchiveIdentity, DataFile
from roquet.model.errors import ConfigError

if TYPE_CHECKING:
    from pyiceberg.table import Table as IceTable
    from pyiceberg.table import Transaction
    from pyiceberg.typedef import Record

IDENTITY: Final = "roquet.state-table"
"""The table property with the identity."""


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
            text = table.properties.get(IDENTITY)
            if text is None:
                raise ConfigError(
                    f"{self._where} is not one that `roquet spark materialize` made: give another "
                    "name (--table)"
                )
            existing = msgspec.json.decode(text, type=StateIdentity)
            self.settings = agreed_settings(self.settings, existing)
        return ArchiveIdentity(topic=self.settings.topic, columns=self.settings.columns)

    def _identity_property(self, identity: ArchiveIdentity) -> tuple[str, object]:  # noqa: ARG002
        return IDENTITY, self.settings

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
