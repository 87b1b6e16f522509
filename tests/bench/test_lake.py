"""The benchmark of the lake: how an archive's plan divides its work among executors."""

import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench"


@pytest.fixture
def lake(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setattr(sys, "path", [str(BENCH), *sys.path])
    return runpy.run_path(str(BENCH / "lake.py"))


def test_the_plan_of_an_archive_gives_each_executor_its_share(lake: dict[str, Any]) -> None:
    planned_share = lake["planned_share"]
    assert planned_share(50_000_000, 1) == pytest.approx(1)
    assert planned_share(50_000_000, 2) == pytest.approx(1 / 2, rel=0.01)
    assert planned_share(50_000_000, 4) == pytest.approx(1 / 4, rel=0.01)


def test_a_table_to_audit_has_each_message_once(lake: dict[str, Any], tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    files = lake["write_rows"](tmp_path, 20, 30)
    assert [file.rows for file in files] == [30]
    rows = pq.read_table(tmp_path / files[0].name).to_pylist()
    places = [row["queue_offset"] * lake["QUEUES"] + row["queue_id"] for row in rows]
    assert places == list(range(20, 50))
