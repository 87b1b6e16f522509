"""RoquetDataSource: the entry point of `format("roquet")`.

    spark.readStream.format("roquet").option("namesrv", "127.0.0.1:9876").option("topic", "orders")

Spark imports it in a worker to look it up, so this module imports as little as possible.
"""

import os
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from roquet.lake.schema import check_fields, ddl
from roquet.log_records import logger
from roquet.model.errors import ConfigError
from roquet.spark.options import SourceOptions, parse, stream_only

if TYPE_CHECKING:
    from roquet.spark.source.store_files import StoreFileOptions

log = logger(__name__)


class RoquetDataSource(DataSource):
    """Messages of topics as rows; the options are those of `options.SourceOptions`."""

    @classmethod
    def name(cls) -> str:
        """The short name for `format`."""
        return "roquet"

    def schema(self) -> str:
        """The selected columns as SQL."""
        if self._reads_files:
            from roquet.spark.source import store_files

            return store_files.schema_of(self._files())
        return ddl(self._settings().columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch reader of topics, or of a store's files."""
        if self._reads_files:
            from roquet.spark.source.store_files import StoreFileReader

            return StoreFileReader(self._files(), fields_of(schema))
        from roquet.spark.source.batch import BatchReader, PushdownReader

        settings = self._settings()
        if ignored := stream_only(self.options):
            log.warning("a batch read ignores %s: only streams use it", ", ".join(ignored))
        kind = PushdownReader if settings.pushdown else BatchReader
        return kind(settings, columns_of(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """A stream reader of topics."""
        from roquet.spark.source.stream import StreamReader

        if self._reads_files:
            raise ConfigError("option 'store' is for spark.read, not for streams")
        settings = self._settings()
        if settings.ending_offsets != "latest":
            raise ConfigError("a stream has no end: leave out endingOffsets and endingTime")
        return StreamReader(settings, columns_of(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """A writer of one DataFrame."""
        from roquet.spark.sink.writers import BatchWriter

        return BatchWriter(dict(self.options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """A writer of micro-batches."""
        from roquet.spark.sink.writers import StreamWriter

        return StreamWriter(dict(self.options), schema, overwrite)

    @property
    def _reads_files(self) -> bool:
        return "store" in self.options

    def _files(self) -> "StoreFileOptions":
        from roquet.net.clock import SYSTEM_CLOCK
        from roquet.spark.source.store_files import parse_store

        return parse_store(dict(self.options), SYSTEM_CLOCK.now_ms())

    def _settings(self) -> SourceOptions:
        return parse(dict(self.options), os.environ)


def columns_of(schema: StructType) -> tuple[str, ...]:
    """The columns of a schema, ours or the user's; ConfigError when it is not valid."""
    return check_fields(fields_of(schema))


def fields_of(schema: StructType) -> list[tuple[str, str]]:
    """Names and SQL types of the fields."""
    return [(field.name, field.dataType.simpleString()) for field in schema.fields]
