"""Trigger: waits in the triggerer's event loop, without a worker.

Its arguments are its whole state: a triggerer that restarts, or another one that takes over, makes
it again from them, and it finds the same message.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Final

from roquet.client import ConsumerConfig, PullConsumer, RoquetError
from roquet.integrations import installed_by
from roquet.integrations.airflow.hook import ClusterSettings, RocketMQHook
from roquet.integrations.airflow.waiting import MessageSearch, message_fields, wait_for

with installed_by("pip install 'roquet[airflow]'"):
    from airflow.triggers.base import BaseTrigger, TriggerEvent


async def _message(
    settings: ClusterSettings, group: str, period_s: float, **conditions: Any
) -> object:
    """Wait for a message that meets the conditions of a MessageSearch."""
    config = settings.config(ConsumerConfig)
    async with PullConsumer(settings.namesrv, group=group, config=config) as consumer:
        search = MessageSearch(consumer, **conditions)
        return message_fields(await wait_for(search.look, period_s))


async def _lag(
    settings: ClusterSettings, group: str, period_s: float, topic: str | None, lag_max: int
) -> object:
    """Wait until a group has no more than `lag_max` messages left, of one topic or of all."""

    async def look() -> int | None:
        lag = await settings.lag(group, topic)
        return lag if lag is not None and lag <= lag_max else None

    return await wait_for(look, period_s)


WAITS: Final[Mapping[str, Callable[..., Awaitable[object]]]] = {"message": _message, "lag": _lag}


class RocketMQTrigger(BaseTrigger):
    """Waits by one of `WAITS`; its event has the result, or the reason why there cannot be one."""

    def __init__(self, *, rocketmq_conn_id: str, wait: str, conditions: dict[str, Any]) -> None:
        """`conditions` are arguments of the function that `WAITS` has by the name `wait`."""
        super().__init__()
        self.rocketmq_conn_id, self.wait, self.conditions = rocketmq_conn_id, wait, conditions

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the path of the class, and the arguments that make the trigger again."""
        names = ("rocketmq_conn_id", "wait", "conditions")
        return f"{__name__}.{type(self).__name__}", {name: getattr(self, name) for name in names}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait, and give one event."""
        try:
            settings = await RocketMQHook(self.rocketmq_conn_id).asettings()
            event = {"result": await WAITS[self.wait](settings, **self.conditions)}
        except RoquetError as error:
            event = {"error": f"{type(error).__name__}: {error}"}
        yield TriggerEvent(event)
