"""roquet lake query: SQL on archives and other tables, by DuckDB in this process, without Spark."""

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from roquet.cli.command_options import argument, option
from roquet.cli.operator_command import CommandGroup
from roquet.cli.process import runtime
from roquet.cli.spark_jobs.job_options import CATALOG, STORAGE, check_installed, parse_pairs
from roquet.cli.terminal import output
from roquet.lake.kinds.iceberg.catalog import parse_catalog
from roquet.model.errors import RoquetError, UsageError

if TYPE_CHECKING:
    import pyarrow as pa
    from duckdb import DuckDBPyConnection, DuckDBPyRelation

SHOWN_MAX: Final = 200
"""Rows of a table on the terminal; --csv and --json print all."""

BATCH_ROWS: Final = 10_000
"""Rows of a result that are in memory at a time."""

CELL_MAX: Final = 200
"""Characters of a value on the terminal."""

SETTINGS: Final[Mapping[str, str]] = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",
    "lock_configuration": "true",
}
"""Of DuckDB: a query sees the named tables, and no other file, address or extension."""

_NAME: Final = re.compile(r"[A-Za-z_]\w*", re.ASCII)

app: Final = CommandGroup("lake", "Tables of archives, without Spark.")


class QueryFailed(RoquetError):
    """A query that failed on the values of its rows; the text is DuckDB's."""


@app.command()
def query(
    sql: str = argument("One SELECT, in DuckDB's SQL."),
    table: list[str] = option(
        "A table, and where it is: a directory, s3://BUCKET/PATH, or its name in the catalog. May "
        "be repeated.",
        metavar="NAME=PATH",
    ),
    catalog: list[str] | None = CATALOG,
    storage_option: list[str] | None = STORAGE,
    as_csv: bool = option("CSV, with a line of names.", "--csv"),
    json: output.JsonOption = False,
) -> None:
    """Query archives and other Delta, Iceberg and Parquet tables with SQL. Needs no Spark.

    Tables are read as they are now, and never changed. Times are in UTC.
    """
    runtime.log_to_stderr(verbose=False)
    check_installed(("duckdb", "pyarrow", "numpy"), "lake")
    if as_csv and json:
        raise UsageError("--csv or --json: a result has one form")
    places = parse_pairs(table, "--table")
    for name in places:
        if not _NAME.fullmatch(name):
            raise UsageError(f"--table: {name!r} is no name for SQL: letters, digits and _")
    storage = parse_pairs(storage_option, "--storage-option")
    with results(sql, places, storage, parse_catalog(catalog)) as result:
        if json:
            _print_json(result)
        elif as_csv:
            _print_csv(result)
        else:
            _print_table(result)


@contextmanager
def results(
    sql: str,
    places: Mapping[str, str],
    storage: Mapping[str, str],
    catalog: Mapping[str, str] = {},
) -> "Iterator[pa.RecordBatchReader]":
    """Run a query on tables by name, and read its result in batches.

    Raises UsageError for SQL that DuckDB refuses, QueryFailed for values that it cannot compute
    with, ConfigError for a place without a table.
    """
    import duckdb

    from roquet.lake.arrow_dataset import arrow_dataset

    datasets = {name: arrow_dataset(place, storage, catalog) for name, place in places.items()}
    try:
        with duckdb.connect(":memory:") as connection:
            for name, dataset in datasets.items():
                connection.register(name, dataset)
            connection.execute("SET TimeZone = 'UTC'")
            for setting, value in SETTINGS.items():
                connection.execute(f"SET {setting} = {value}")
            yield _planned(connection, sql, places).to_arrow_reader(BATCH_ROWS)
    except duckdb.Error as error:
        raise QueryFailed(str(error)) from error


def _planned(
    connection: "DuckDBPyConnection", sql: str, places: Mapping[str, str]
) -> "DuckDBPyRelation":
    """A query that is ready to run; UsageError for SQL that DuckDB refuses."""
    import duckdb

    try:
        relation = connection.sql(sql)
    except duckdb.Error as error:
        listed = ", ".join(f"{name}={place}" for name, place in places.items())
        raise UsageError(f"{error}\n\ntables of this query: {listed}") from error
    if relation is None:
        raise UsageError("the statement has no result: give one SELECT")
    return relation


def rows_of(result: "pa.RecordBatchReader") -> Iterator[Sequence[Any]]:
    """The rows of a result, as plain values: bytes as text where they are UTF-8."""
    for batch in result:
        columns = [column.to_pylist() for column in batch.columns]
        for row in zip(*columns, strict=True):
            yield [_plain(value) for value in row]


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return value  # base64 in JSON
    return value


def _print_json(result: "pa.RecordBatchReader") -> None:
    names = result.schema.names
    output.echo_json(dict(zip(names, row, strict=True)) for row in rows_of(result))


def _print_csv(result: "pa.RecordBatchReader") -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(result.schema.names)
    for row in rows_of(result):
        writer.writerow("" if value is None else _text(value) for value in row)
        if text.tell() > io.DEFAULT_BUFFER_SIZE:
            _flush(text)
    _flush(text)


def _flush(text: io.StringIO) -> None:
    if text.tell():
        output.echo_lines(text.getvalue().removesuffix("\n"))
        text.seek(0)
        text.truncate()


def _print_table(result: "pa.RecordBatchReader") -> None:
    shown: list[list[str]] = []
    more = False
    for row in rows_of(result):
        if len(shown) == SHOWN_MAX:
            more = True
            break
        shown.append([_cell(value) for value in row])
    table = output.table(result.schema.names, shown)
    for place, field in enumerate(result.schema):
        if _is_number(field.type):
            table.columns[place].justify = "right"
    output.console().print(table)
    if more:
        output.echo(f"and more: these are the first {SHOWN_MAX}; --csv and --json print all")


def _is_number(kind: "pa.DataType") -> bool:
    import pyarrow.types as kinds

    return bool(kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_decimal(kind))


def _cell(value: Any) -> str:
    text = "-" if value is None else _text(value)
    return text if len(text) <= CELL_MAX else f"{text[: CELL_MAX - 1]}…"


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.hex()
    return f"{value:.6g}" if isinstance(value, float) else str(value)
