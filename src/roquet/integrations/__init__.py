"""Integrations: adapters for frameworks, by which their programs use RocketMQ.

celery          the kombu transport `rocketmq://`: tasks of Celery, or kombu without it
faststream      a broker for FastStream: subscribers and publishers as decorators
taskiq          its broker and its result backend
fastapi         a producer, consumers and a probe with the lifespan of an application
airflow         a hook, and sensors for messages and for a group's lag
opentelemetry   spans of all clients under `opentelemetry-instrument`
structlog       fields of a message in all lines that its handler logs

Each adapter needs its framework, which is an extra of Roquet with the adapter's name.
"""
