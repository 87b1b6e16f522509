"""Integrations: adapters for frameworks, by which their programs use RocketMQ.

celery   the kombu transport `rocketmq://`: tasks of Celery, or kombu without it

Each adapter needs its framework, which is an extra of Roquet with the adapter's name.
"""
