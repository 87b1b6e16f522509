"""Lag is sampled into a table, and reported with a page and a verdict."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from roquet.model.errors import ConfigError, RoquetError
from roquet.model.topic import SubscriptionGroup
from roquet.net.blocking import BlockingChannel
from roquet.spark.jobs.lag import lag_job, sampling
from roquet.spark.jobs.lag.lag_job import (
    LagProgress,
    Params,
    merge_files,
    open_samples,
    read_samples,
    run,
)
from roquet.spark.jobs.lag.sampling import SCHEMA, LagSample
from roquet.spark.jobs.lag.trends import LagState
from roquet.wire.calls.admin.topic import CreateGroup
from roquet.wire.calls.offset import UpdateOffset
from roquet.wire.fastjson.codec import dumps


def parameters(topic: Any, root: Path, **changes: Any) -> Params:
    given = {"target": str(root), "namesrv": topic.namesrv, "every_ms": 100, "for_ms": 400}
    return Params(**{**given, **changes})


def stand(topic: Any, group: str, offset: int) -> None:
    """A group that stands there in the queues of the first broker."""
    with BlockingChannel(topic.running.broker_addrs[0]) as channel:
        channel.call(CreateGroup(body=dumps(SubscriptionGroup(group_name=group))))
        for queue_id in (0, 1):
            channel.call(
                UpdateOffset(
                    consumer_group=group, topic="orders", queue_id=queue_id, commit_offset=offset
                )
            )


def test_groups_are_watched_and_the_table_is_there(topic: Any, tmp_path: Path) -> None:
    topic.send(10)
    stand(topic, "billing", 4)
    told = list[LagProgress]()
    done = run(parameters(topic, tmp_path / "lag"), told.append)
    assert [one.samples for one in told] == [1, 2, 3, 4, 5]
    assert {(one.wanted, one.lag) for one in told} == {(5, 12)}
    [one] = done.standings
    assert (one.group, one.outlook.state, one.outlook.lag) == ("billing", LagState.STOPPED, 12)
    assert one.outlook.cut_off_s == pytest.approx(72 * 3600, abs=60)
    assert read_samples(tmp_path / "lag").num_rows == 10
    assert len(list((tmp_path / "lag" / "samples").iterdir())) == 1, "they have become one"
    assert "billing" in (tmp_path / "lag" / "lag.html").read_text("utf-8")
    kept = msgspec.json.decode((tmp_path / "lag" / "standings.json").read_bytes())
    assert kept["samples"] == 5


def test_a_second_run_adds_to_the_table(topic: Any, tmp_path: Path) -> None:
    topic.send(1)
    stand(topic, "billing", 0)
    for _ in range(2):
        run(parameters(topic, tmp_path, for_ms=100))
    assert read_samples(tmp_path).num_rows == 8


def test_it_can_be_ended(topic: Any, tmp_path: Path) -> None:
    topic.send(1)
    stand(topic, "billing", 0)
    looks = iter([False, False])
    done = run(parameters(topic, tmp_path, for_ms=60_000), should_stop=lambda: next(looks, True))
    assert done.samples < 4
    assert len(done.standings) == 1


def test_ctrl_c_ends_it_with_a_report(topic: Any, tmp_path: Path) -> None:
    topic.send(1)
    stand(topic, "billing", 0)

    def interrupted() -> bool:
        raise KeyboardInterrupt

    done = run(parameters(topic, tmp_path), should_stop=interrupted)
    assert (done.samples, len(done.standings)) == (1, 1)


def test_a_look_that_fails_is_left_out(
    topic: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic.send(1)
    stand(topic, "billing", 0)
    fails = iter([False, True, False])
    real = sampling.sample

    async def moody(*given: Any) -> LagSample:
        if next(fails):
            raise RoquetError("no name server helps")
        return await real(*given)

    monkeypatch.setattr(sampling, "sample", moody)
    assert run(parameters(topic, tmp_path, for_ms=200)).samples == 3
    assert read_samples(tmp_path).num_rows == 4


def test_a_first_look_that_fails_is_the_end(tmp_path: Path) -> None:
    params = Params(target=str(tmp_path), namesrv="127.0.0.1:1", every_ms=100, for_ms=100)
    with pytest.raises(RoquetError):
        run(params)


@pytest.mark.parametrize(
    ("changes", "says"),
    [({"every_ms": 50}, "too often"), ({"every_ms": 500, "for_ms": 100}, "is shorter than")],
)
def test_times_that_cannot_be_are_told(tmp_path: Path, changes: Any, says: str) -> None:
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
    lag_job._write_rows(SCHEMA.empty_table(), path)
    merge_files([path], tmp_path)
    assert path.exists()
