"""Groups are watched: a table of samples, a page, and a verdict."""

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from roquet.model.errors import ConfigError, RoquetError
from roquet.model.topic import SubscriptionGroup
from roquet.net.blocking import BlockingChannel
from roquet.spark.jobs import lag, sampling
from roquet.spark.jobs.lag import Params, Progress, courses, merge, opened, run, table, transform
from roquet.spark.jobs.sampling import SCHEMA, Sample
from roquet.spark.jobs.trends import State
from roquet.wire.calls.offset import UpdateOffset
from roquet.wire.calls.topic import CreateGroup
from roquet.wire.dialect import dumps

START = 1_769_860_800_000


def samples(
    group: str, committed: float, end: float, *, count: int = 20, queue_id: int = 0,
    lag0: int = 100, broker: str = "a", consumed: int | None = None,
) -> pa.Table:  # fmt: skip
    """A sample every ten seconds; rates a second."""
    rows = []
    for n in range(count):
        here, last = int(committed * n * 10), lag0 + int(end * n * 10)
        rows.append(
            {
                "at": START + n * 10_000, "group": group, "topic": "orders", "broker": broker,
                "queue_id": queue_id, "begin": 0, "committed": here, "end": last,
                "lag": last - here, "consumed_at": consumed,
            }
        )  # fmt: skip
    return pa.Table.from_pylist(rows, SCHEMA)


def test_who_does_worst_comes_first() -> None:
    rows = pa.concat_tables(
        [
            samples("fine", 5, 5, lag0=0),
            samples("slow", 2, 5),
            samples("stands", 0, 5, consumed=START - 3_600_000),
            samples("nearer", 6, 5, lag0=10_000),
        ]
    )
    found = transform(rows, {"a": 2 * 3600.0})
    assert [(one.group, one.outlook.state) for one in found] == [
        ("stands", State.STOPPED),
        ("slow", State.FALLING_BEHIND),
        ("nearer", State.CATCHING_UP),
        ("fine", State.CAUGHT_UP),
    ]
    assert found[0].outlook.cut_off_s == pytest.approx(3600 - 190)
    assert found[1].outlook.cut_off_s is None


def test_the_queues_of_a_topic_are_one_standing() -> None:
    rows = pa.concat_tables([samples("g", 5, 5, lag0=0), samples("g", 2, 5, queue_id=1)])
    [one] = transform(rows, {})
    assert (one.queues, one.worst, one.outlook.state) == (2, "a:1", State.FALLING_BEHIND)
    assert one.outlook.come == pytest.approx(10)


def test_a_retention_that_no_broker_tells_can_be_given() -> None:
    rows = samples("g", 0, 5, consumed=START)
    assert transform(rows, {})[0].outlook.cut_off_s is None
    assert transform(rows, {}, 600_000)[0].outlook.cut_off_s == pytest.approx(600 - 190)
    assert transform(rows, {"a": 700.0}, 600_000)[0].outlook.cut_off_s == pytest.approx(510)


def test_samples_in_any_order_are_courses() -> None:
    rows = pa.concat_tables(
        [samples("g", 1, 2), samples("h", 3, 4), samples("g", 5, 6, broker="b")]
    )
    mixed = rows.take(np.random.default_rng(1).permutation(rows.num_rows))
    found = courses(mixed)
    assert set(found) == {("g", "orders", "a", 0), ("h", "orders", "a", 0), ("g", "orders", "b", 0)}
    for course in found.values():
        assert (np.diff(course.at_s) == 10).all()
        assert len(course.at_s) == 20
    assert found["g", "orders", "b", 0].committed[-1] == 950
    assert np.isnan(found["g", "orders", "a", 0].consumed_s).all()


def test_a_queue_that_is_gone_is_not_judged() -> None:
    rows = pa.concat_tables([samples("g", 1, 2), samples("old", 1, 2, count=5)])
    assert [one.group for one in transform(rows, {})] == ["g"]
    assert transform(SCHEMA.empty_table(), {}) == ()


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
    told = list[Progress]()
    done = run(parameters(topic, tmp_path / "lag"), told.append)
    assert [one.samples for one in told] == [1, 2, 3, 4, 5]
    assert {(one.wanted, one.lag) for one in told} == {(5, 12)}
    [one] = done.standings
    assert (one.group, one.outlook.state, one.outlook.lag) == ("billing", State.STOPPED, 12)
    assert one.outlook.cut_off_s == pytest.approx(72 * 3600, abs=60)
    assert table(tmp_path / "lag").num_rows == 10
    assert len(list((tmp_path / "lag" / "samples").iterdir())) == 1, "they have become one"
    assert "billing" in (tmp_path / "lag" / "lag.html").read_text("utf-8")
    kept = msgspec.json.decode((tmp_path / "lag" / "standings.json").read_bytes())
    assert kept["samples"] == 5


def test_a_second_run_adds_to_the_table(topic: Any, tmp_path: Path) -> None:
    topic.send(1)
    stand(topic, "billing", 0)
    for _ in range(2):
        run(parameters(topic, tmp_path, for_ms=100))
    assert table(tmp_path).num_rows == 8


def test_it_can_be_ended(topic: Any, tmp_path: Path) -> None:
    topic.send(1)
    stand(topic, "billing", 0)
    looks = iter([False, False])
    done = run(parameters(topic, tmp_path, for_ms=60_000), ended=lambda: next(looks, True))
    assert done.samples < 4
    assert len(done.standings) == 1


def test_ctrl_c_ends_it_with_a_report(topic: Any, tmp_path: Path) -> None:
    topic.send(1)
    stand(topic, "billing", 0)

    def interrupted() -> bool:
        raise KeyboardInterrupt

    done = run(parameters(topic, tmp_path), ended=interrupted)
    assert (done.samples, len(done.standings)) == (1, 1)


def test_a_look_that_fails_is_left_out(
    topic: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic.send(1)
    stand(topic, "billing", 0)
    fails = iter([False, True, False])
    real = sampling.sample

    async def moody(*given: Any) -> Sample:
        if next(fails):
            raise RoquetError("no name server helps")
        return await real(*given)

    monkeypatch.setattr(lag.sampling, "sample", moody)
    assert run(parameters(topic, tmp_path, for_ms=200)).samples == 3
    assert table(tmp_path).num_rows == 4


def test_a_first_look_that_fails_is_the_end(tmp_path: Path) -> None:
    params = Params(target=str(tmp_path), namesrv="127.0.0.1:1", every_ms=100, for_ms=100)
    with pytest.raises(RoquetError):
        run(params)


@pytest.mark.parametrize(
    ("changes", "says"),
    [({"every_ms": 50}, "too often"), ({"every_ms": 500, "for_ms": 100}, "less time than")],
)
def test_times_that_cannot_be_are_told(tmp_path: Path, changes: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        opened(Params(target=str(tmp_path), **changes))


def test_a_directory_of_something_else_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("all of it")
    with pytest.raises(ConfigError, match="not empty and holds no samples"):
        opened(Params(target=str(tmp_path)))
    with pytest.raises(ConfigError, match="is a file"):
        opened(Params(target=str(tmp_path / "thesis.txt")))


def test_one_file_is_not_merged(tmp_path: Path) -> None:
    opened(Params(target=str(tmp_path)))
    path = tmp_path / "samples" / "1.parquet"
    lag._write(samples("g", 1, 2), path)
    merge([path], tmp_path)
    assert path.exists()
