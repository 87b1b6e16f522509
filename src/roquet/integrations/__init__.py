"""Integrations: adapters for frameworks, by which their programs use RocketMQ.

airflow  a hook, and sensors that wait for a message or for a group's lag without a worker

Each adapter needs its framework, which is an extra of Roquet with the adapter's name.
"""
