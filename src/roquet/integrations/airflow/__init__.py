"""Airflow: connections of type `rocketmq`, a hook, and deferrable sensors.

    hook       RocketMQHook: producers, sends and lag with the settings of a connection
    sensors    RocketMQMessageSensor, RocketMQLagSensor: tasks that wait
    triggers   what waits for them, in the triggerer's event loop
    waiting    searches for the message; needs no Airflow

Airflow finds the connection type by `get_provider_info`, an entry point of the package. Nothing
else of Roquet imports these modules.
"""

from roquet import __version__

HOOK = "roquet.integrations.airflow.hook.RocketMQHook"


def get_provider_info() -> dict[str, object]:
    """Return what Airflow's provider manager asks a package for."""
    return {
        "package-name": "roquet",
        "name": "RocketMQ",
        "description": "Hook and deferrable sensors for RocketMQ",
        "versions": [__version__],
        "connection-types": [{"connection-type": "rocketmq", "hook-class-name": HOOK}],
    }
