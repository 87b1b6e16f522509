"""roquet lake query: SQL on tables without Spark; bad input is one error."""

import importlib.util
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.cli.running import invoke

from roquet.cli.lake import query
from roquet.model.errors import ConfigError, UsageError

ROWS = pa.table(
    {
        "carrier": ["UA", None, "a,b"],
        "flights": [1200, 7, 3],
        "delay": [1.5, None, float("nan")],
        "body": [b"text", b"\xff", None],
        "day": [date(2026, 1, 31)] * 3,
        "at": pa.array([datetime(2026, 1, 31, tzinfo=UTC)] * 3, pa.timestamp("us", "UTC")),
    }
)


@pytest.fixture
def answered(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A query engine that always gives ROWS, and keeps what it was asked."""
    asked: dict[str, Any] = {}

    @contextmanager
    def results(
        sql: str, places: Mapping[str, str], storage: Mapping[str, str], catalog: Mapping[str, str]
    ) -> Iterator[pa.RecordBatchReader]:
        asked.update(sql=sql, places=places, storage=storage, catalog=catalog)
        yield asked.get("rows", ROWS).to_reader(max_chunksize=2)

    monkeypatch.setattr(query, "results", results)
    monkeypatch.setattr(query, "check_installed", lambda *_: None)
    return asked


def test_a_result_is_a_table(answered: dict[str, Any]) -> None:
    result = invoke("lake", "query", "select 1", "--table", "flights=lake/flights")
    assert result.exit_code == 0, result.output
    assert answered["places"] == {"flights": "lake/flights"}
    head, first, second, _ = result.stdout.splitlines()
    assert head.split() == ["carrier", "flights", "delay", "body", "day", "at"]
    assert first.split() == [
        "UA",
        "1200",
        "1.5",
        "text",
        "2026-01-31",
        "2026-01-31",
        "00:00:00+00:00",
    ]
    assert second.split()[:4] == ["-", "7", "-", "ff"]


def test_a_long_table_is_cut(answered: dict[str, Any]) -> None:
    answered["rows"] = pa.table({"n": list(range(300))})
    lines = invoke("lake", "query", "x", "--table", "t=p").stdout.splitlines()
    assert len(lines) == 202
    assert lines[-1] == "and more: these are the first 200; --csv and --json print all"


def test_a_result_is_json_for_programs(answered: dict[str, Any]) -> None:
    lines = invoke("lake", "query", "x", "--table", "t=p", "--json").stdout.splitlines()
    rows = [json.loads(line) for line in lines]
    assert rows[0] == {
        "carrier": "UA",
        "flights": 1200,
        "delay": 1.5,
        "body": "text",
        "day": "2026-01-31",
        "at": "2026-01-31T00:00:00Z",
    }
    assert (rows[1]["body"], rows[2]["delay"]) == ("/w==", None)


def test_a_result_is_csv_for_spreadsheets(answered: dict[str, Any]) -> None:
    lines = invoke("lake", "query", "x", "--table", "t=p", "--csv").stdout.splitlines()
    assert lines[0] == "carrier,flights,delay,body,day,at"
    assert lines[2] == ",7,,ff,2026-01-31,2026-01-31 00:00:00+00:00"
    assert lines[3].startswith('"a,b",3,nan,,')


def test_hostile_text_is_escaped(answered: dict[str, Any]) -> None:
    answered["rows"] = pa.table({"t\x1b[31m": ["\x1b]0;owned\x07"]})
    for form in ([], ["--csv"], ["--json"]):
        shown = invoke("lake", "query", "x", "--table", "t=p", *form).stdout
        assert not {"\x1b", "\x07"} & set(shown)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--table", "lake/flights"], "is not NAME=VALUE"),
        (["--table", "my-flights=lake"], "no name for SQL"),
        (["--table", "t=p", "--csv", "--json"], "a result has one form"),
    ],
)
def test_wrong_options_are_one_error(answered: dict[str, Any], words: list[str], text: str) -> None:
    error = invoke("lake", "query", "x", *words).exception
    assert isinstance(error, ConfigError | UsageError)
    assert text in str(error)


def test_without_duckdb_the_command_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    find: Callable[[str], Any] = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "duckdb" else find(name)
    )
    error = invoke("lake", "query", "select 1", "--table", "t=p").exception
    assert isinstance(error, UsageError)
    assert str(error) == "this needs duckdb: pip install 'roquet[lake]'"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A directory of Parquet files, partitioned as Spark does."""
    pytest.importorskip("duckdb", reason="pip install 'roquet[lake]'")
    for carrier, delays in (("UA", [1, 2, None]), ("AA", [5])):
        directory = tmp_path / "flights" / f"carrier={carrier}"
        directory.mkdir(parents=True)
        pq.write_table(pa.table({"delay": pa.array(delays, pa.int32())}), directory / "1.parquet")
    return tmp_path / "flights"


def duck(table: Path, sql: str) -> list[dict[str, Any]]:
    with query.results(sql, {"flights": str(table)}, {}) as result:
        names = result.schema.names
        return [dict(zip(names, row, strict=True)) for row in query.rows_of(result)]


def test_a_query_is_answered_from_the_files(table: Path) -> None:
    sql = "select carrier, count(*) as n, avg(delay) as d from flights group by 1 order by 1"
    assert duck(table, sql) == [
        {"carrier": "AA", "n": 1, "d": 5.0},
        {"carrier": "UA", "n": 3, "d": 1.5},
    ]


@pytest.mark.parametrize(
    ("sql", "text"),
    [
        ("select nothing from flights", "nothing"),
        ("selekt 1", "syntax"),
        ("select * from read_csv('/etc/passwd')", "disabled"),
        ("copy flights to '/tmp/roquet-never.csv'", "disabled"),
        ("set enable_external_access = true", "lock|configuration"),
        ("", "give one SELECT"),
    ],
)
def test_a_query_that_cannot_be_run_is_one_error(table: Path, sql: str, text: str) -> None:
    with pytest.raises(UsageError, match=f"(?i){text}"):
        duck(table, sql)


def test_wrong_sql_names_the_tables_that_there_are(table: Path) -> None:
    result = invoke("lake", "query", "select * from flihgts", "--table", f"flights={table}")
    assert isinstance(result.exception, UsageError), "so the command ends with code 2"
    assert str(result.exception).endswith(f"tables of this query: flights={table}")


def test_values_that_cannot_be_converted_are_no_wrong_use(table: Path) -> None:
    with pytest.raises(query.QueryFailed, match="Conversion Error"):
        duck(table, "select carrier::int from flights")


def test_a_catalog_is_that_of_the_tables(answered: dict[str, Any]) -> None:
    words = ["--catalog", "glue", "--catalog-option", "glue.region=eu-west-1"]
    result = invoke("lake", "query", "x", "--table", "t=lake.orders", *words)
    assert result.exit_code == 0, result.output
    assert answered["catalog"] == {"name": "glue", "glue.region": "eu-west-1"}
