"""RoquetDataSource: the entry point of `format("roquet")`.

    spark.readStream.format("roquet").option("namesrv", "127.0.0.1:9876").option("topic", "orders")

Spark imports it in a worker to look it up, so this module imports as little as possible.
"""

import gc
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import (
    CaseInsensitiveDict,
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from roquet.lake.schema import DEFAULT, check_fields, ddl
from roquet.log_records import logger
from roquet.model.errors import ConfigError, RoquetError
from roquet.spark.options import SourceOptions, parse, parse_columns, stream_only
from roquet.spark.worker_process import entry_point, is_worker

if TYPE_CHECKING:
    from roquet.spark.source.store_files import StoreFileOptions

log = logger(__name__)


PROVIDER: Final = "provider"
"""Property of a table that names its data source; Spark passes it while it creates the table."""

OPTION_PREFIX: Final = "option."
"""Prefix of a statement's own OPTIONS among the properties of its table."""


def declared_options(properties: Mapping[str, str]) -> CaseInsensitiveDict:
    """The OPTIONS of `CREATE TABLE … USING roquet`; Spark adds the owner, a location and others."""
    names = [name for name in properties if name.startswith(OPTION_PREFIX)]
    own = {name.removeprefix(OPTION_PREFIX): properties[name] for name in names}
    own.pop("path", None)  # that of LOCATION
    return CaseInsensitiveDict(own)


class RoquetDataSource(DataSource):
    """Messages of topics as rows; the options are those of `options.SourceOptions`."""

    def __init__(self, options: dict[str, str]) -> None:
        self._is_table_definition = PROVIDER in options
        super().__init__(declared_options(options) if self._is_table_definition else options)

    @classmethod
    def name(cls) -> str:
        """The short name for `format`."""
        return "roquet"

    @entry_point()
    def schema(self) -> str:
        """The selected columns as SQL."""
        if self._reads_files:
            from roquet.spark.source import store_files

            return store_files.schema_of(self._files())
        if self._is_table_definition:
            return ddl(self._defined_columns())
        return ddl(self._settings().columns)

    @entry_point()
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
        if is_worker():
            # The imports below would start collections of all that PySpark has loaded: a third of
            # their time.
            gc.freeze()
        from roquet.spark.source.stream import RefusedStream, StreamReader

        try:
            return StreamReader(self._stream_settings(), columns_of(schema))
        except RoquetError as error:
            return RefusedStream(error)

    @entry_point()
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """A writer of one DataFrame."""
        from roquet.spark.sink.writers import BatchWriter

        return BatchWriter(dict(self.options), schema, overwrite)

    @entry_point()
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """A writer of micro-batches."""
        from roquet.spark.sink.writers import StreamWriter

        return StreamWriter(dict(self.options), schema, overwrite)

    def _defined_columns(self) -> tuple[str, ...]:
        """The columns of a table that is created without a list of them."""
        if others := [name for name in self.options if name.lower() != "columns"]:
            log.warning(
                "Spark does not pass a table's OPTIONS to its reads (%s): name them in each query, "
                "SELECT … FROM t WITH (topic = 'orders'), or create a TEMPORARY VIEW",
                ", ".join(others),
            )
        return parse_columns(self.options.get("columns") or ",".join(DEFAULT), "columns")

    @property
    def _reads_files(self) -> bool:
        return "store" in self.options

    def _files(self) -> "StoreFileOptions":
        from roquet.net.clock import SYSTEM_CLOCK
        from roquet.spark.source.store_files import parse_store

        return parse_store(dict(self.options), SYSTEM_CLOCK.now_ms())

    def _stream_settings(self) -> SourceOptions:
        if self._reads_files:
            raise ConfigError("option 'store' is for spark.read, not for streams")
        settings = self._settings()
        if settings.ending_offsets != "latest":
            raise ConfigError("a stream has no end: leave out endingOffsets and endingTime")
        return settings

    def _settings(self) -> SourceOptions:
        return parse(dict(self.options), os.environ)


def columns_of(schema: StructType) -> tuple[str, ...]:
    """The columns of a schema, ours or the user's; ConfigError when it is not valid."""
    return check_fields(fields_of(schema))


def fields_of(schema: StructType) -> list[tuple[str, str]]:
    """Names and SQL types of the fields."""
    return [(field.name, field.dataType.simpleString()) for field in schema.fields]
