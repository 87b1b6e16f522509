"""Tasks of Celery over RocketMQ: at once, later, with a priority, repeated after a failure.

NAMESRV_ADDR=127.0.0.1:9876 python celery_app.py        # starts a worker, too

A worker of its own is `celery -A celery_app worker`.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from celery import Celery, Task

from roquet.integrations.celery import RecallingControl

app = Celery(
    "celery_app",
    broker=f"rocketmq://{os.environ.get('NAMESRV_ADDR', '127.0.0.1:9876')}",
    backend="rpc://",
    control=RecallingControl,  # `revoke` takes tasks back that wait for their time
)
app.conf.task_acks_late = True  # a task whose worker dies is run by another one
app.conf.task_queue_max_priority = 9
app.conf.broker_connection_retry_on_startup = True
app.conf.broker_transport_options = {"visibility_timeout": 30}


@app.task(bind=True, max_retries=3)
def charge(task: "Task[Any, Any]", customer: str, amount: int) -> str:
    if task.request.retries == 0 and amount > 40:
        raise task.retry(countdown=1)  # the broker keeps it until then
    return f"{customer} pays {amount} EUR after {task.request.retries} retries"


def main() -> None:
    at_once = charge.delay("ada", 13)
    urgent = charge.apply_async(("bob", 42), priority=9)
    later = charge.apply_async(("eve", 7), countdown=2)
    for result in (at_once, urgent, later):
        print(result.get(timeout=30))


if __name__ == "__main__":
    # It warns of a superuser, as in a container.
    command = [
        "-W",
        "ignore",
        "-m",
        "celery",
        "-A",
        "celery_app",
        "worker",
        "-P",
        "threads",
        "-l",
        "ERROR",
    ]
    with subprocess.Popen([sys.executable, *command], cwd=Path(__file__).parent) as worker:
        try:
            main()
        finally:
            worker.terminate()
