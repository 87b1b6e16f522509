"""Sensors defer at once to triggers that hold all they need, and return what these found."""

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("airflow", reason="pip install 'roquet[airflow]'")
from airflow.sdk.exceptions import AirflowException, TaskDeferred

from roquet.client import ConfigError
from roquet.integrations.airflow.sensors import RocketMQLagSensor, RocketMQMessageSensor

BEGUN = datetime(2026, 3, 1, 12, tzinfo=UTC)
CONTEXT: Any = {"dag_run": SimpleNamespace(start_date=BEGUN, run_after=BEGUN)}


def deferred(sensor: Any) -> tuple[str, dict[str, Any]]:
    with pytest.raises(TaskDeferred) as raised:
        sensor.execute(CONTEXT)
    assert raised.value.timeout.total_seconds() == sensor.timeout
    serialized: tuple[str, dict[str, Any]] = raised.value.trigger.serialize()
    return serialized


@pytest.mark.parametrize(
    ("since", "begin"),
    [
        (None, BEGUN),
        (datetime(2026, 2, 1, tzinfo=UTC), datetime(2026, 2, 1, tzinfo=UTC)),
        ("2026-02-01T00:00:00+00:00", datetime(2026, 2, 1, tzinfo=UTC)),
        ("2026-02-01", datetime(2026, 2, 1, tzinfo=UTC)),
    ],
    ids=["the run's start", "datetime", "template", "date"],
)
def test_every_try_of_a_run_searches_from_one_time(
    since: datetime | str | None, begin: datetime
) -> None:
    sensor = RocketMQMessageSensor(task_id="a", topic="orders", tags="done", since=since)
    path, arguments = deferred(sensor)
    assert path.endswith("triggers.RocketMQTrigger")
    assert (arguments["rocketmq_conn_id"], arguments["wait"]) == ("rocketmq_default", "message")
    assert arguments["conditions"] == {
        "topic": "orders", "tags": "done", "sql": None, "key": None, "group": "airflow",
        "since_ms": int(begin.timestamp() * 1000), "period_s": 5,
    }  # fmt: skip


def test_a_lag_is_asked_for_as_often_as_the_sensor_pokes() -> None:
    sensor = RocketMQLagSensor(task_id="a", group="billing", lag_max=5, poke_interval=7)
    _, arguments = deferred(sensor)
    assert arguments["conditions"] == {
        "group": "billing", "topic": None, "lag_max": 5, "period_s": 7,
    }  # fmt: skip


def test_the_result_is_the_events() -> None:
    sensor = RocketMQLagSensor(task_id="a", group="billing")
    assert sensor.execute_complete(CONTEXT, {"result": 3}) == 3
    with pytest.raises(AirflowException, match="no such group"):
        sensor.execute_complete(CONTEXT, {"error": "NotFound: no such group"})


def test_a_wrong_time_is_said() -> None:
    with pytest.raises(ConfigError, match="since: 'today' is no time"):
        RocketMQMessageSensor(task_id="a", topic="orders", since="today").execute(CONTEXT)
