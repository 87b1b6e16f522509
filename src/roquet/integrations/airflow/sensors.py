"""Sensors: tasks that wait for a message, or until a group has caught up, and hold no worker."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn

from airflow.sdk import BaseSensorOperator, Context
from airflow.sdk.exceptions import AirflowException

from roquet.client import ConfigError
from roquet.integrations.airflow.hook import RocketMQHook
from roquet.integrations.airflow.triggers import RocketMQLagTrigger, RocketMQMessageTrigger


class _Sensor(BaseSensorOperator):
    """A sensor that is always deferred; its result is the event's."""

    def _wait(self, trigger: object) -> NoReturn:
        self.defer(
            trigger=trigger,
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

    template_fields: Sequence[str] = ("topic", "tags", "sql", "key", "since", "rocketmq_conn_id")

    def __init__(
        self,
        *,
        topic: str,
        tags: str = "*",
        sql: str | None = None,
        key: str | None = None,
        since: datetime | str | None = None,
        group: str = "airflow",
        rocketmq_conn_id: str = RocketMQHook.default_conn_name,
        **named: Any,
    ) -> None:
        super().__init__(**named)
        self.topic, self.tags, self.sql, self.key = topic, tags, sql, key
        self.since = since
        self.group = group
        self.rocketmq_conn_id = rocketmq_conn_id

    def execute(self, context: Context) -> NoReturn:
        """Defer to a trigger that searches from `since` on."""
        wanted = {
            "topic": self.topic,
            "since_ms": int(self._begin(context).timestamp() * 1000),
            "tags": self.tags,
            "sql": self.sql,
            "key": self.key,
        }
        self._wait(
            RocketMQMessageTrigger(
                rocketmq_conn_id=self.rocketmq_conn_id, group=self.group, wanted=wanted
            )
        )

    def _begin(self, context: Context) -> datetime:
        since = self.since
        if since is None:
            run = context["dag_run"]
            since = run.start_date or run.run_after
        if isinstance(since, str):
            try:
                since = datetime.fromisoformat(since)
            except ValueError as error:
                raise ConfigError(f"since: {since!r} is no time in ISO 8601") from error
        return since if since.tzinfo else since.replace(tzinfo=UTC)


class RocketMQLagSensor(_Sensor):
    """Waits until a group has at most `lag_max` messages left, and returns how many.

    `topic` counts one of its topics alone. The group is asked for each `poke_interval` seconds.
    """

    template_fields: Sequence[str] = ("group", "topic", "rocketmq_conn_id")

    def __init__(
        self,
        *,
        group: str,
        topic: str | None = None,
        lag_max: int = 0,
        rocketmq_conn_id: str = RocketMQHook.default_conn_name,
        **named: Any,
    ) -> None:
        super().__init__(**named)
        self.group, self.topic, self.lag_max = group, topic, lag_max
        self.rocketmq_conn_id = rocketmq_conn_id

    def execute(self, context: Context) -> NoReturn:
        """Defer to a trigger that asks the brokers."""
        del context
        self._wait(
            RocketMQLagTrigger(
                rocketmq_conn_id=self.rocketmq_conn_id,
                group=self.group,
                topic=self.topic,
                lag_max=self.lag_max,
                period_s=self.poke_interval,
            )
        )
