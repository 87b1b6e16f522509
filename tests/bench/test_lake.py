"""The benchmark of the lake: how an archive's plan divides its work among executors."""

from pathlib import Path

import pytest
from bench.lib import cpu_share

from bench import lake


def test_the_plan_of_an_archive_gives_each_executor_its_share() -> None:
    assert lake.planned_share(50_000_000, 1) == pytest.approx(1)
    assert lake.planned_share(50_000_000, 2) == pytest.approx(1 / 2, rel=0.01)
    assert lake.planned_share(50_000_000, 4) == pytest.approx(1 / 4, rel=0.01)


def test_a_table_to_audit_has_each_message_once(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    files = lake.write_rows(tmp_path, 20, 30)
    assert [file.rows for file in files] == [30]
    rows = pq.read_table(tmp_path / files[0].name).to_pylist()
    places = [row["queue_offset"] * lake.QUEUES + row["queue_id"] for row in rows]
    assert places == list(range(20, 50))


@pytest.mark.parametrize(
    ("cores", "works"),
    [
        (0.5, ["archive by two executors of half a core each, beside one: time",
               "archive by two executors of half a core each: broker"]),
        (0.0, ["archive by two executors: broker"]),
    ],
)  # fmt: skip
def test_times_of_executors_are_compared_only_if_each_was_held_to_half_a_core(
    cores: float, works: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = ({"seconds": s, "broker_cores": 0.4, "executor_cores": cores} for s in (10.0, 5.0))
    rows = lake.archive_rows(one, two)
    assert [row.work for row in rows] == works
    assert [row.ours for row in rows] == [0.5, 0.4][-len(works) :]
    assert ("left out" in capsys.readouterr().out) == (not cores)


def test_a_limit_that_fails_undoes_those_before_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "cpu.cfs_quota_us").touch()
    monkeypatch.setattr(cpu_share, "VERSION_1", tmp_path)
    with cpu_share.limited([41], 0.5) as is_limited:
        group = tmp_path / "roquet-bench-41"
        assert is_limited
        assert (group / "cgroup.procs").read_text() == "41"
        assert (group / "cpu.cfs_quota_us").read_text() == "10000"
    assert (tmp_path / "cgroup.procs").read_text() == "41"
    (tmp_path / "roquet-bench-43").touch()
    with cpu_share.limited([42, 43], 0.5) as is_limited:
        assert not is_limited
        assert (tmp_path / "cgroup.procs").read_text() == "42"
