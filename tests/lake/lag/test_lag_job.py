"""Lag is sampled into a table, and reported with a page and a verdict."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow.parquet as pq
import pytest
from tests.lake.lag.conftest import commit_at

from roquet.lake.files.file_tree import file_tree
from roquet.lake.lag import sampling
from roquet.lake.lag.lag_job import (
    LagProgress,
    Params,
    merge_files,
    open_samples,
    read_samples,
    run,
)
from roquet.lake.lag.sampling import SCHEMA, LagSample
from roquet.lake.lag.trends import LagState
from roquet.lake.objects.object_store import ObjectStore, StorageFailed
from roquet.lake.open_table import table_location
from roquet.model.errors import ConfigError, RoquetError

if TYPE_CHECKING:
    from tests.spark.jobs.conftest import Topic
    from tests.spark_suite.conftest import S3Server


def parameters(topic: "Topic", root: Path, **changes: Any) -> Params:
    arguments = {"target": str(root), "namesrv": topic.namesrv, "every_ms": 100, "for_ms": 400}
    return Params(**{**arguments, **changes})


def test_groups_are_watched_and_the_table_is_there(topic: "Topic", tmp_path: Path) -> None:
    topic.send(10)
    commit_at(topic, "billing", 4)
    reports = list[LagProgress]()
    done = run(parameters(topic, tmp_path / "lag"), reports.append)
    assert [one.samples for one in reports] == [1, 2, 3, 4, 5]
    assert {(one.wanted, one.lag) for one in reports} == {(5, 12)}
    [one] = done.standings
    assert (one.group, one.outlook.state, one.outlook.lag) == ("billing", LagState.STOPPED, 12)
    assert one.outlook.cut_off_s == pytest.approx(72 * 3600, abs=60)
    assert read_samples(tmp_path / "lag").num_rows == 10
    assert len(list((tmp_path / "lag" / "samples").iterdir())) == 1, "they have become one"
    assert "billing" in (tmp_path / "lag" / "lag.html").read_text("utf-8")
    kept = msgspec.json.decode((tmp_path / "lag" / "standings.json").read_bytes())
    assert kept["samples"] == 5


def test_a_second_run_adds_to_the_table(topic: "Topic", tmp_path: Path) -> None:
    topic.send(1)
    commit_at(topic, "billing", 0)
    for _ in range(2):
        run(parameters(topic, tmp_path, for_ms=100))
    assert read_samples(tmp_path).num_rows == 8


def test_a_run_stops_on_request(topic: "Topic", tmp_path: Path) -> None:
    topic.send(1)
    commit_at(topic, "billing", 0)
    looks = iter([False, False])
    done = run(parameters(topic, tmp_path, for_ms=60_000), should_stop=lambda: next(looks, True))
    assert done.samples < 4
    assert len(done.standings) == 1


def test_ctrl_c_ends_a_run_with_a_report(topic: "Topic", tmp_path: Path) -> None:
    topic.send(1)
    commit_at(topic, "billing", 0)

    def interrupted() -> bool:
        raise KeyboardInterrupt

    done = run(parameters(topic, tmp_path), should_stop=interrupted)
    assert (done.samples, len(done.standings)) == (1, 1)


def test_a_sample_that_fails_is_left_out(
    topic: "Topic", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic.send(1)
    commit_at(topic, "billing", 0)
    fails = iter([False, True, False])
    real = sampling.sample

    async def moody(*arguments: Any) -> LagSample:
        if next(fails):
            raise RoquetError("no name server helps")
        return await real(*arguments)

    monkeypatch.setattr(sampling, "sample", moody)
    assert run(parameters(topic, tmp_path, for_ms=200)).samples == 3
    assert read_samples(tmp_path).num_rows == 4


def test_a_first_sample_that_fails_ends_the_run(tmp_path: Path) -> None:
    params = Params(target=str(tmp_path), namesrv="127.0.0.1:1", every_ms=100, for_ms=100)
    with pytest.raises(RoquetError):
        run(params)


@pytest.mark.parametrize(
    ("changes", "says"),
    [({"every_ms": 50}, "too often"), ({"every_ms": 500, "for_ms": 100}, "is shorter than")],
)
def test_impossible_times_are_an_error(tmp_path: Path, changes: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        open_samples(Params(target=str(tmp_path), **changes))


def test_a_directory_of_something_else_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("all of it")
    with pytest.raises(ConfigError, match="not empty and holds no samples"):
        open_samples(Params(target=str(tmp_path)))
    with pytest.raises(ConfigError, match="is a file"):
        open_samples(Params(target=str(tmp_path / "thesis.txt")))


def test_one_file_is_not_merged(tmp_path: Path) -> None:
    open_samples(Params(target=str(tmp_path)))
    path = tmp_path / "samples" / "1.parquet"
    pq.write_table(SCHEMA.empty_table(), path)
    merge_files(["samples/1.parquet"], file_tree(tmp_path))
    assert path.exists()


def test_samples_and_page_may_lie_in_an_object_store(topic: "Topic", s3: "S3Server") -> None:
    topic.send(10)
    commit_at(topic, "billing", 4)
    params = Params(target="s3://lake/lag", namesrv=topic.namesrv, every_ms=100, for_ms=200)
    done = run(params)
    assert (done.samples, done.page) == (3, "s3://lake/lag/lag.html")
    run(params)
    keys = s3.stored()
    assert len([key for key in keys if key.startswith("lake/lag/samples/")]) == 2, "one of each run"
    assert {"lake/lag/lag.html", "lake/lag/standings.json"} <= {*keys}
    assert read_samples(table_location("s3://lake/lag")).num_rows == 12
    with s3.files().open_input_stream("lake/lag/lag.html") as page:
        assert page.metadata()["Content-Type"] == b"text/html", "browsers show it"
        assert b"billing" in page.read()


def test_a_path_of_something_else_and_a_bucket_that_is_not_there_are_errors(s3: "S3Server") -> None:
    with s3.files().open_output_stream("lake/theirs/thesis.txt") as stream:
        stream.write(b"all of it")
    with pytest.raises(ConfigError, match="not empty and holds no samples"):
        open_samples(Params(target="s3://lake/theirs"))
    with pytest.raises(ConfigError, match="there is no bucket 'sea'"):
        open_samples(Params(target="s3://sea/lag"))


def test_a_sample_that_cannot_be_stored_is_left_out(
    topic: "Topic", s3: "S3Server", monkeypatch: pytest.MonkeyPatch
) -> None:
    topic.send(1)
    commit_at(topic, "billing", 0)
    put, fails = ObjectStore.put, iter([False, True])

    def moody(self: ObjectStore, path: str, data: bytes) -> None:
        if next(fails, False):
            raise StorageFailed("the store is away")
        put(self, path, data)

    monkeypatch.setattr(ObjectStore, "put", moody)
    params = Params(target="s3://lake/lag", namesrv=topic.namesrv, every_ms=100, for_ms=200)
    assert run(params).samples == 3
    assert read_samples(table_location("s3://lake/lag")).num_rows == 4
