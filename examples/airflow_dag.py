"""An Airflow DAG that waits for a message, handles it, and waits until a group has caught up.

Needs Airflow 3.3, `pip install 'roquet[airflow]'`, and a cluster as connection `rocketmq_default`:

    AIRFLOW_CONN_ROCKETMQ_DEFAULT='rocketmq://127.0.0.1:9876' airflow dags test exports
"""

from typing import Any

from airflow.sdk import dag, task

from roquet.integrations.airflow.hook import RocketMQHook
from roquet.integrations.airflow.sensors import RocketMQLagSensor, RocketMQMessageSensor


@dag(schedule=None)
def exports() -> None:
    """Forward each export that is done."""
    arrived = RocketMQMessageSensor(task_id="arrived", topic="exports", tags="done", timeout=3_600)
    drained = RocketMQLagSensor(
        task_id="drained", group="billing", lag_max=100, poke_interval=5, timeout=3_600
    )

    @task
    def forward(message: dict[str, Any]) -> str:
        receipt = RocketMQHook().send("loads", message["body"].encode(), keys=message["keys"])
        return receipt.message_id

    forward(arrived.output) >> drained


exports()
