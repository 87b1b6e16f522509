"""A sample has one row for each queue of each group."""

from typing import TYPE_CHECKING

import pytest
from tests.lake.lag.conftest import commit_at

from roquet.admin import brokers, groups
from roquet.admin.client import AdminClient
from roquet.lake.lag.sampling import SCHEMA, LagSample, retention, sample
from roquet.model.errors import CallError, CallTimeout, UsageError
from roquet.net import loop

if TYPE_CHECKING:
    from tests.spark.jobs.conftest import Topic


def sample_of(topic: "Topic", *names: str) -> LagSample:
    async def ask() -> LagSample:
        async with AdminClient(topic.namesrv) as admin:
            return await sample(admin, names)

    return loop.run(ask())


def test_a_group_has_a_row_for_each_queue(topic: "Topic") -> None:
    topic.send(10)
    commit_at(topic, "billing", 4)
    sample = sample_of(topic)
    assert sample.rows.schema == SCHEMA
    assert sample.silent == []
    row, other = sorted(sample.rows.to_pylist(), key=lambda row: row["queue_id"])
    assert other["queue_id"] == 1
    assert row.pop("at") >= row.pop("consumed_at")
    assert row == {
        "group": "billing", "topic": "orders", "broker": "broker-a", "queue_id": 0,
        "begin": 0, "committed": 4, "end": 10, "lag": 6,
    }  # fmt: skip


def test_a_group_at_the_beginning_has_the_age_of_the_first_message(topic: "Topic") -> None:
    topic.send(10)
    commit_at(topic, "billing", 0)
    for row in sample_of(topic, "billing").rows.to_pylist():
        assert row["consumed_at"] is not None
        assert row["lag"] == 10


def test_a_group_of_an_empty_topic_has_no_age(topic: "Topic") -> None:
    commit_at(topic, "billing", 0)
    assert [row["consumed_at"] for row in sample_of(topic, "billing").rows.to_pylist()] == [
        None
    ] * 2


def test_a_missing_group_is_an_error(topic: "Topic") -> None:
    commit_at(topic, "billing", 0)
    with pytest.raises(UsageError, match=r"group 'biling' is unknown .*did you mean 'billing'"):
        sample_of(topic, "biling")


def test_without_groups_there_are_no_rows(topic: "Topic") -> None:
    assert sample_of(topic).rows.num_rows == 0


def test_brokers_report_their_retention_time(
    topic: "Topic", monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ask() -> dict[str, float]:
        async with AdminClient(topic.namesrv) as admin:
            return await retention(admin)

    assert loop.run(ask()) == {"broker-a": 72 * 3600.0, "broker-b": 72 * 3600.0}

    async def nothing(*_: object) -> dict[str, str]:
        return {}

    monkeypatch.setattr(brokers, "settings", nothing)
    assert loop.run(ask()) == {}

    async def minutes(*_: object) -> dict[str, str]:
        return {"fileReservedTime": "0"}

    monkeypatch.setattr(brokers, "settings", minutes)
    assert loop.run(ask()) == {}, "it is some minutes, and nobody says how many"


def test_a_broker_that_is_away_is_named(topic: "Topic") -> None:
    topic.send(2)
    commit_at(topic, "billing", 1)
    topic.running.stop_broker(1)
    sample = sample_of(topic, "billing")
    assert [row["broker"] for row in sample.rows.to_pylist()] == ["broker-a"] * 2


def test_a_broker_that_does_not_say_its_groups_is_named_where_the_others_know_none(
    topic: "Topic", monkeypatch: pytest.MonkeyPatch
) -> None:
    refusal = CallTimeout("broker-b: no answer")

    async def known_names(_: AdminClient) -> tuple[list[str], dict[str, CallError]]:
        return [], {"broker-b": refusal}

    monkeypatch.setattr(groups, "known_names", known_names)
    assert sample_of(topic).silent == ["broker-b"]
