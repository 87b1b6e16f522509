"""Tasks of the fleet's workers: each writes a line when it runs."""

import os
from pathlib import Path
from typing import Any

from celery import Celery, Task

import roquet.integrations.celery  # noqa: F401 - registers rocketmq://
from roquet.net.clock import SYSTEM_CLOCK

DONE = Path(os.environ.get("FLEET_DONE", os.devnull))

app = Celery("fleet", broker=os.environ.get("FLEET_BROKER", "rocketmq://"), backend="rpc://")
app.conf.update(
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    task_ignore_result=True,
    worker_prefetch_multiplier=4,
    task_queue_max_priority=9,
    broker_connection_retry_on_startup=True,
    broker_transport_options={"visibility_timeout": 5},
)


@app.task(bind=True, max_retries=5)
def note(task: "Task[Any, Any]", number: int, due: float, fails: int) -> None:
    """Run once in a while: note the time, and fail `fails` times before."""
    if task.request.retries < fails:
        raise task.retry(countdown=1)
    line = f"{number} {SYSTEM_CLOCK.now_ms() / 1000} {due}\n".encode()
    with DONE.open("ab", buffering=0) as file:
        file.write(line)


@app.task(ignore_result=False)
def add(one: int, other: int) -> int:
    """Add two numbers."""
    return one + other
