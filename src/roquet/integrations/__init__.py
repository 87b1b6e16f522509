"""Integrations: adapters for frameworks, by which their programs use RocketMQ.

celery          the kombu transport `rocketmq://`: tasks of Celery, or kombu without it
faststream      a broker for FastStream: subscribers and publishers as decorators
taskiq          its broker and its result backend
fastapi         a producer, consumers and a probe with the lifespan of an application
airflow         a hook, and sensors for messages and for a group's lag
opentelemetry   spans of all clients under `opentelemetry-instrument`
structlog       fields of a message in all lines that its handler logs

Each adapter needs its framework, which the extra of Roquet with the adapter's name brings. That of
OpenTelemetry is `tracing`, and its adapter needs opentelemetry-instrumentation besides, which comes
with `opentelemetry-distro`.
"""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def installed_by(command: str) -> Iterator[None]:
    """Import an adapter's framework; ModuleNotFoundError has the command that installs it."""
    try:
        yield
    except ModuleNotFoundError as error:
        name = error.name or ""
        if name.partition(".")[0] == "roquet":
            raise
        raise ModuleNotFoundError(f"{name} not installed: {command}", name=name) from error
