"""RoquetDataSource: the name Spark knows.

    spark.readStream.format("roquet").option("namesrv", "127.0.0.1:9876").option("topic", "orders")

Spark looks for it by importing it in a worker, so this module imports no more than it must.
"""

import os

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from roquet.spark.options import SourceOptions, parse
from roquet.spark.schema import checked, ddl


class RoquetDataSource(DataSource):
    """Messages of a topic as rows; `options.SourceOptions` says what can be set."""

    @classmethod
    def name(cls) -> str:
        """What `format` takes."""
        return "roquet"

    def schema(self) -> str:
        """The chosen columns."""
        return ddl(self._settings().columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        """One range of each queue, read once."""
        from roquet.spark.batch import BatchReader

        return BatchReader(self._settings(), columns_of(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Ranges that follow one another."""
        from roquet.spark.stream import StreamReader

        return StreamReader(self._settings(), columns_of(schema))

    def _settings(self) -> SourceOptions:
        return parse(dict(self.options), os.environ)


def columns_of(schema: StructType) -> tuple[str, ...]:
    """The columns that Spark wants: ours, or those of a schema that the user gave."""
    return checked((field.name, field.dataType.simpleString()) for field in schema.fields)
