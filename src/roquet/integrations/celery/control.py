"""Control: `revoke` cancels tasks that wait for their time, besides telling the workers."""

from collections.abc import Iterable
from typing import Any

from celery.app.control import Control

from roquet.integrations.celery.channel import RocketMQChannel


class RecallingControl(Control):
    """Celery's remote control: `Celery(…, control=RecallingControl)`.

    Workers forget revoked tasks when they end. The broker does not: a task with a countdown or an
    ETA that it has cancelled never comes.
    """

    def revoke(self, task_id: str | Iterable[str], *positional: Any, **named: Any) -> Any:
        """Revoke one task or several."""
        told = super().revoke(task_id, *positional, **named)
        with self.app.connection_for_write() as connection:
            if isinstance(channel := connection.default_channel, RocketMQChannel):
                for each in [task_id] if isinstance(task_id, str) else [*task_id]:
                    channel.clients.run(channel.clients.recall(each))
        return told
