"""Triggers: wait in the triggerer's event loop, without a worker.

A trigger's arguments are its whole state: a triggerer that restarts, or another one that takes
over, makes it again from them, and it finds the same message.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from roquet.client import CallError, ConsumerConfig, PullConsumer, RoquetError
from roquet.integrations.airflow.hook import ClusterSettings, RocketMQHook, lag_of
from roquet.integrations.airflow.waiting import WantedMessage, first_message, message_fields


class _Trigger(BaseTrigger):
    """A trigger whose event carries the result, or the reason why there cannot be one."""

    def __init__(self, *, rocketmq_conn_id: str, group: str, **others: Any) -> None:
        super().__init__()
        self._arguments = {"rocketmq_conn_id": rocketmq_conn_id, "group": group, **others}
        self._hook = RocketMQHook(rocketmq_conn_id)
        self._group = group

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the path of the class, and the arguments that make the trigger again."""
        return f"{__name__}.{type(self).__name__}", self._arguments

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait, and give one event."""
        try:
            event = {"result": await self._wait(await self._hook.asettings())}
        except RoquetError as error:
            event = {"error": f"{type(error).__name__}: {error}"}
        yield TriggerEvent(event)

    async def _wait(self, settings: ClusterSettings) -> object:
        raise NotImplementedError


class RocketMQMessageTrigger(_Trigger):
    """Waits for a message; `wanted` are the fields of a `WantedMessage`."""

    def __init__(self, *, wanted: dict[str, Any], **others: Any) -> None:
        super().__init__(wanted=wanted, **others)
        self._wanted = WantedMessage(**wanted)

    async def _wait(self, settings: ClusterSettings) -> object:
        config = settings.config(ConsumerConfig)
        async with PullConsumer(settings.namesrv, group=self._group, config=config) as consumer:
            return message_fields(await first_message(consumer, self._wanted))


class RocketMQLagTrigger(_Trigger):
    """Waits until a group has no more than `lag_max` messages left, of one topic or of all."""

    def __init__(self, *, topic: str | None, lag_max: int, period_s: float, **others: Any) -> None:
        super().__init__(topic=topic, lag_max=lag_max, period_s=period_s, **others)
        self._topic, self._lag_max, self._period_s = topic, lag_max, period_s

    async def _wait(self, settings: ClusterSettings) -> object:
        while True:
            try:
                lag = await lag_of(settings, self._group, self._topic)
            except CallError as error:
                self.log.warning("group %s: %s; trying again", self._group, error)
            else:
                if lag is not None and lag <= self._lag_max:
                    return lag
                self.log.info("group %s has %s messages left", self._group, lag)
            await asyncio.sleep(self._period_s)
