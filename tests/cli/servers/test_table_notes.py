from pathlib import Path

import pytest

from roquet.cli.servers.table_notes import job_rows, table_source
from roquet.lake.status import JobStatus, LagPoint, write_status
from roquet.model.errors import ConfigError


def test_notes_beside_a_table_are_read(tmp_path: Path) -> None:
    point = LagPoint(at_ms=2_000, committed=90, waiting=10, oldest_ms=1_000)
    status = JobStatus(
        job="archive",
        topic="orders",
        number=3,
        committed_ms=1_500,
        offsets={},
        points=(point,),
    )
    write_status(tmp_path, status)
    assert table_source() is job_rows
    (row,) = job_rows(str(tmp_path))
    assert (row.topic, row.commits, row.lag, row.lag_s) == ("orders", 3, 10, 1.0)
    assert row.overtaken_s is None


def test_a_directory_without_notes_says_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has no status"):
        job_rows(str(tmp_path))
