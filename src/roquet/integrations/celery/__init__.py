"""Celery: tasks over RocketMQ, by the kombu transport `rocketmq://`.

import roquet.integrations.celery           # kombu knows rocketmq:// and rocketmqs:// by this

app = Celery("shop", broker="rocketmq://127.0.0.1:9876", backend="rpc://")
"""

from roquet.integrations import installed_by

with installed_by("pip install 'roquet[celery]'"):
    from kombu.transport import TRANSPORT_ALIASES

    from roquet.integrations.celery.control import RecallingControl
    from roquet.integrations.celery.transport import Transport

__all__ = ["RecallingControl", "Transport"]

TRANSPORT_ALIASES["rocketmq"] = f"{Transport.__module__}:Transport"
TRANSPORT_ALIASES["rocketmqs"] = f"{Transport.__module__}:TlsTransport"
