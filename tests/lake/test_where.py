"""A condition on any column finds the same rows in every kind of table, by every reader."""

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable as Log
from pyiceberg.expressions import EqualTo, IsNull

from roquet.cli.lake.query import results
from roquet.lake.arrow_dataset import arrow_dataset
from roquet.lake.columns.body_columns import BodyField, file_schema, parse_fields
from roquet.lake.columns.body_parser import BodyParser
from roquet.lake.columns.partitioning import schema_of
from roquet.lake.files import parquet_writer
from roquet.lake.files.parquet_writer import PartitionedWriter
from roquet.lake.kinds.iceberg import catalog_of
from roquet.lake.open_table import open_table
from roquet.lake.queue_offsets import QueueOffsets
from roquet.lake.schema import TYPES
from roquet.lake.states.state_table import IcebergStateTable, StateIdentity, StateTable
from roquet.lake.table import ArchiveIdentity, ArchiveTable

QUEUE = ("orders", "broker-a", 0)
NEW_YEAR = datetime(2026, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
FIRST = datetime(1, 1, 1, tzinfo=UTC)
LAST = datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)
LONG = "k" * 300
TOO_LONG = "я" * 2_500
"""A key of which Parquet keeps no bounds."""

FIELDS = (
    "id bigint, small int, amount double, rate float, paid boolean, city string, born date, "
    "at timestamp"
)
ADDED = "carrier string, gate int"
"""Fields that only the second commit's bodies have."""

TABLES = (
    ("delta", "", ""),
    ("delta", "hour", ""),
    ("delta", "", "json"),
    ("iceberg", "", ""),
    ("iceberg", "", "json"),
    ("iceberg", "day,bucket(key,4)", ""),
    ("delta", "state", ""),
    ("iceberg", "state", ""),
)


def message(at: int) -> dict[str, Any]:
    """A message of every sort: with and without key, tag and times, at the ends of days."""
    has = at % 3 != 0
    stored = NEW_YEAR + timedelta(microseconds=at - 3) if at != 5 else None
    stored = {6: FIRST, 10: LAST}.get(at, stored)
    row: dict[str, Any] = dict.fromkeys(TYPES)
    row |= {"topic": "orders", "broker": "broker-a", "queue_id": 0, "queue_offset": at}
    row |= {"message_id": f"0A{at:030}", "body": _body(at), "properties": [("TAGS", "UA")]}
    row |= {"key": ("k", LONG, "ключ", TOO_LONG)[at % 4] if has else None}
    row |= {"tag": ("UA", "\U0010ffff" * 40, "", "a'b")[at % 4] if has else None}
    row |= {"stored_at": stored, "born_at": stored, "position": 2**62 + at, "size": at}
    row |= {"sys_flag": -(2**31), "flag": 2**31 - 1, "reconsume_times": at % 2}
    return row


def _body(at: int) -> bytes:
    if at == 4:
        return b"\xff no JSON"
    body: dict[str, Any] = {
        "id": 2**53 + at,
        "small": -at,
        "amount": at / 2,
        "rate": 0.5,
        "paid": at % 2 == 0,
    }
    body |= {"city": f"city {at}" * 9, "born": "1969-12-31", "at": "2026-12-31T23:59:59.999999Z"}
    body |= {"carrier": "UA", "gate": at} if at >= 8 else {}
    return msgspec.json.encode({} if at == 7 else body)


class Table(NamedTuple):
    """A table, and its rows."""

    kind: str
    root: Path
    rows: pa.Table

    @property
    def columns(self) -> Sequence[str]:
        """The names of the columns with values that can be compared."""
        return [field.name for field in self.rows.schema if not pa.types.is_nested(field.type)]


def rows_of(offsets: range, columns: Sequence[str], fields: Sequence[BodyField] | None) -> Any:
    """The messages at these offsets as the workers of an archive have them."""
    found = pa.RecordBatch.from_pylist(list(map(message, offsets)), schema_of(columns))
    return found if fields is None else next(BodyParser(fields).add_columns([found]))


def fill(table: ArchiveTable, offsets: range, scheme: Any, schema: pa.Schema) -> pa.RecordBatch:
    """Commit the messages at these offsets in files of a few row groups."""
    fields = table.body_fields() if table.identity.body_format else None
    directory = table.begin()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet_writer, "GROUP_BYTES", 1)  # a row group for each batch
        writer = PartitionedWriter(directory, schema, scheme=scheme)
    rows = rows_of(offsets, table.identity.columns, fields)
    for at in range(len(rows)):
        writer.write(rows.slice(at, 1))
    after: QueueOffsets = {QUEUE: offsets.stop}
    table.commit(table.state((QUEUE,)).then(after, directory.name, writer.close(), ()))
    return rows


def archived(kind: str, root: Path, partition_by: str, body_format: str) -> pa.Table:
    """Fill an archive by two commits, the second with more columns if bodies are parsed."""
    identity = ArchiveIdentity(
        topic="orders", columns=tuple(TYPES), partition_by=partition_by, body_format=body_format
    )
    parts = []
    with open_table(kind, str(root), identity) as table:
        for offsets, fields in ((range(8), FIELDS), (range(8, 12), ADDED)):
            if body_format:
                table.add_body_fields(parse_fields(fields))
            fields_now = table.body_fields() if body_format else None
            schema = file_schema(table.identity.columns, fields_now)
            parts.append(fill(table, offsets, table.identity.scheme, schema))
    tables = [pa.Table.from_batches([part]) for part in parts]
    rows = pa.concat_tables(tables, promote_options="default")
    if kind == "iceberg":
        return rows
    rows = rows.append_column("day", rows["stored_at"].cast(pa.date32()))
    return rows.append_column("hour", pc.hour(rows["stored_at"])) if partition_by else rows


def state(kind: str, root: Path) -> pa.Table:
    """Fill a table of latest states."""
    wanted = StateIdentity(topic="orders", deletes="keep", buckets=3)
    parts = []
    opened = StateTable if kind == "delta" else IcebergStateTable
    with opened(root, wanted) as table:
        settings = table.settings
        for offsets in (range(8), range(8, 12)):
            rows = rows_of(offsets, settings.columns, None)
            marked = rows.append_column("is_deleted", pa.array([at == 1 for at in offsets]))
            directory = table.begin()
            writer = PartitionedWriter(
                directory, settings.file_schema(), scheme=settings.key_buckets
            )
            writer.write(marked)
            after: QueueOffsets = {QUEUE: offsets.stop}
            table.commit(table.state((QUEUE,)).then(after, directory.name, writer.close(), ()))
            parts.append(marked)
    return pa.Table.from_batches(parts)


@pytest.fixture(scope="module", params=TABLES, ids=" ".join)
def table(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Table:
    kind, scheme, body_format = request.param
    root = tmp_path_factory.mktemp("where") / "lake"
    made = state(kind, root) if scheme == "state" else archived(kind, root, scheme, body_format)
    return Table(kind, root, made)


Condition = tuple[str, Any]
"""A column, and a scalar of its type; None for null."""


def conditions(table: Table) -> dict[Condition, int]:
    """The rows that have a value, for the least, the largest and no value of every column."""
    found = {}
    for column in table.columns:
        counts = Counter(table.rows[column].to_pylist())
        known = sorted(value for value in counts if value is not None)
        kind = table.rows.schema.field(column).type
        for value in {*known[:1], *known[-1:]}:
            found[column, pa.scalar(value, kind)] = counts[value]
        if None in counts:
            found[column, None] = counts[None]
    return found


def expression(column: str, value: Any) -> ds.Expression:
    return ds.field(column).is_null() if value is None else ds.field(column) == value


def check(table: Table, found: Callable[[str, Any], int]) -> None:
    """Each condition finds as many rows as there are."""
    wrong = {
        f"{column} = {str(value)[:40]}: {have} rows of {count}"
        for (column, value), count in conditions(table).items()
        if (have := found(column, value)) != count
    }
    assert not wrong


def test_lake_query_finds_every_value(table: Table) -> None:
    wanted = list(conditions(table))
    selects = [
        f'select {number} as number, count(*) as n from t where "{column}" '
        + ("is null" if value is None else f"= {_literal(value.as_py())}")
        for number, (column, value) in enumerate(wanted)
    ]
    with results(" union all ".join(selects), {"t": str(table.root)}, {}) as reader:
        rows = reader.read_all().to_pylist()
    counts = {wanted[row["number"]]: row["n"] for row in rows}
    check(table, lambda column, value: int(counts[column, value]))


def _literal(value: Any) -> str:
    if isinstance(value, bytes):
        return "'" + "".join(f"\\x{byte:02X}" for byte in value) + "'::blob"
    if isinstance(value, datetime):
        return f"'{value.isoformat()}'::timestamptz"
    if isinstance(value, date):
        return f"'{value}'::date"
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else repr(value)


def test_pyarrow_finds_every_value(table: Table) -> None:
    rows = arrow_dataset(str(table.root))
    check(table, lambda column, value: rows.count_rows(filter=expression(column, value)))


def test_the_dataset_of_deltalake_finds_every_value(table: Table) -> None:
    if table.kind != "delta":
        pytest.skip("another kind of table")
    rows = Log(str(table.root)).to_pyarrow_dataset()
    check(table, lambda column, value: rows.count_rows(filter=expression(column, value)))


def test_polars_finds_every_value(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    pl = pytest.importorskip("polars")
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    if table.kind == "delta":
        rows = pl.scan_delta(str(table.root))
    elif table.kind == "iceberg":
        rows = pl.scan_iceberg(loaded(table))
    else:
        rows = pl.scan_parquet(f"{table.root}/day=*/**/*.parquet", hive_partitioning=True)

    def found(column: str, value: Any) -> int:
        is_wanted = pl.col(column).is_null()
        if value is not None:
            typed = pl.from_arrow(pa.array([value.as_py()], value.type))
            is_wanted = pl.col(column) == pl.lit(typed[0], typed.dtype)
        return int(rows.filter(is_wanted).select(pl.len()).collect().item())

    check(table, found)


def test_pyiceberg_finds_every_value(table: Table) -> None:
    if table.kind != "iceberg":
        pytest.skip("another kind of table")
    opened = loaded(table)
    is_null: Any = IsNull
    equal_to: Any = EqualTo

    def found(column: str, value: Any) -> int:
        wanted = is_null(column) if value is None else equal_to(column, _plain(value.as_py()))
        return int(opened.scan(row_filter=wanted).count())

    check(table, found)


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value


def loaded(table: Table) -> Any:
    """The Iceberg table as others open it."""
    return catalog_of(table.root, {}).load_table("roquet.orders")
