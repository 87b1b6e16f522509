"""RoquetDataSource: the name Spark knows.

    spark.readStream.format("roquet").option("namesrv", "127.0.0.1:9876").option("topic", "orders")

Spark looks for it by importing it in a worker, so this module imports no more than it must.
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

from roquet.log_records import logger
from roquet.model.errors import ConfigError
from roquet.spark.options import SourceOptions, parse, stream_only
from roquet.spark.schema import check_fields, ddl

if TYPE_CHECKING:
    from roquet.spark.source.store_files import StoreFileOptions

log = logger(__name__)


class RoquetDataSource(DataSource):
    """Messages of a topic as rows; `options.SourceOptions` says what can be set."""

    @classmethod
    def name(cls) -> str:
        """What `format` takes."""
        return "roquet"

    def schema(self) -> str:
        """The chosen columns."""
        if self._reads_files:
            from roquet.spark.source import store_files

            return store_files.schema_of(self._files())
        return ddl(self._settings().columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        """One range of each queue, or all of a store's files, read once."""
        if self._reads_files:
            from roquet.spark.source.store_files import StoreFileReader

            return StoreFileReader(self._files(), fields_of(schema))
        from roquet.spark.source.batch import BatchReader, PushdownReader

        settings = self._settings()
        if ignored := stream_only(self.options):
            log.warning("a batch read takes no notice of %s: only streams do", ", ".join(ignored))
        kind = PushdownReader if settings.pushdown else BatchReader
        return kind(settings, columns_of(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Ranges that follow one another."""
        from roquet.spark.source.stream import StreamReader

        if self._reads_files:
            raise ConfigError("option 'store' is for spark.read: files are no stream")
        settings = self._settings()
        if settings.ending_offsets != "latest":
            raise ConfigError("a stream does not end: leave out endingOffsets and endingTime")
        return StreamReader(settings, columns_of(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Rows to messages, once."""
        from roquet.spark.sink.writers import BatchWriter

        return BatchWriter(dict(self.options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """Rows to messages, one micro-batch after the other."""
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
    """The columns that Spark wants: ours, or those of a schema that the user gave."""
    return check_fields(fields_of(schema))


def fields_of(schema: StructType) -> list[tuple[str, str]]:
    """Names and SQL types."""
    return [(field.name, field.dataType.simpleString()) for field in schema.fields]
