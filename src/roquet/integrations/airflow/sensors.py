"""Sensors: tasks that wait for a message, or until a group has caught up, and hold no worker."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn

from roquet.integrations import installed_by
from roquet.integrations.airflow.hook import RocketMQHook
from roquet.integrations.airflow.triggers import RocketMQTrigger
from roquet.model.moments import parse_moment

with installed_by("pip install 'roquet[airflow]'"):
    from airflow.sdk import BaseSensorOperator, Context
    from airflow.sdk.exceptions import AirflowException


class _Sensor(BaseSensorOperator):
    """A sensor that is always deferred; its result is the event's."""

    template_fields: Sequence[str] = ("group", "topic", "rocketmq_conn_id")

    def __init__(
        self,
        *,
        group: str,
        topic: str | None,
        rocketmq_conn_id: str = RocketMQHook.default_conn_name,
        **named: Any,
    ) -> None:
        super().__init__(**named)
        self.group, self.topic = group, topic
        self.rocketmq_conn_id = rocketmq_conn_id

    def _wait(self, wait: str, **conditions: Any) -> NoReturn:
        conditions |= {"group": self.group, "topic": self.topic, "period_s": self.poke_interval}
        self.defer(
            trigger=RocketMQTrigger(
                rocketmq_conn_id=self.rocketmq_conn_id, wait=wait, conditions=conditions
            ),
            method_name="execute_complete",
            timeout=timedelta(seconds=self.timeout),
        )
        raise AssertionError("a deferred task has left")

    def execute_complete(self, context: Context, event: dict[str, Any]) -> object:
        """Return the trigger's result; AirflowException when there cannot be one."""
        del context
        if "error" in event:
            raise AirflowException(event["error"])
        return event["result"]


class RocketMQMessageSensor(_Sensor):
    """Waits for a message of a topic, and returns it as `waiting.message_fields` does.

    `since` is a datetime, or its text in ISO 8601 as templates give it; without it the start of the
    DAG's run: tries of one run see the same messages. `tags` are one tag, or several joined by
    `||`; `sql` filters by properties instead; `key` is one of the message's keys. Brokers that
    check access have to let `group` read the topic; it commits nothing.
    """

    template_fields = (*_Sensor.template_fields, "tags", "sql", "key", "since")

    def __init__(
        self,
        *,
        topic: str,
        tags: str = "*",
        sql: str | None = None,
        key: str | None = None,
        since: datetime | str | None = None,
        group: str = "airflow",
        poke_interval: float = 5,
        **named: Any,
    ) -> None:
        super().__init__(topic=topic, group=group, poke_interval=poke_interval, **named)
        self.tags, self.sql, self.key, self.since = tags, sql, key, since

    def execute(self, context: Context) -> NoReturn:
        """Defer to a trigger that searches from `since` on."""
        run = context["dag_run"]
        since = str(self.since or run.start_date or run.run_after)
        since_ms = parse_moment(since, "since", UTC)
        self._wait("message", tags=self.tags, sql=self.sql, key=self.key, since_ms=since_ms)


class RocketMQLagSensor(_Sensor):
    """Waits until a group has at most `lag_max` messages left, and returns how many.

    `topic` counts one of its topics alone. The group is asked for each `poke_interval` seconds.
    """

    def __init__(
        self, *, group: str, topic: str | None = None, lag_max: int = 0, **named: Any
    ) -> None:
        super().__init__(group=group, topic=topic, **named)
        self.lag_max = lag_max

    def execute(self, context: Context) -> NoReturn:
        """Defer to a trigger that asks the brokers."""
        del context
        self._wait("lag", lag_max=self.lag_max)
