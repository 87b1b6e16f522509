"""Integrations: adapters for frameworks, by which their programs use RocketMQ.

celery   the kombu transport `rocketmq://`: tasks of Celery, or kombu without it
taskiq   its broker and its result backend
fastapi  a producer, consumers and a probe with the lifespan of an application
opentelemetry   spans of all clients under `opentelemetry-instrument`
structlog       fields of a message in all lines that its handler logs

Each adapter needs its framework, which is an extra of Roquet with the adapter's name.
"""
