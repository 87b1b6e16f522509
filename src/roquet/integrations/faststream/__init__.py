"""FastStream broker: subscribers and publishers of RocketMQ topics in FastStream applications.

    broker = RocketBroker("127.0.0.1:9876")

    @broker.subscriber("orders", group="billing", tags="new || paid")
    async def bill(order: Order) -> None: ...

`pip install 'roquet[faststream]'`. FastStream makes its brokers of classes whose names begin with
an underscore, so this package is of one minor version of it.
"""

from roquet.integrations import installed_by

with installed_by("pip install 'roquet[faststream]'"):
    from roquet.integrations.faststream.broker import RocketBroker, RocketRouter
    from roquet.integrations.faststream.messages import RocketMessage, RocketResponse
    from roquet.integrations.faststream.publisher import RocketPublisher
    from roquet.integrations.faststream.subscriber import RocketSubscriber
    from roquet.integrations.faststream.testing import TestRocketBroker

__all__ = [
    "RocketBroker",
    "RocketMessage",
    "RocketPublisher",
    "RocketResponse",
    "RocketRouter",
    "RocketSubscriber",
    "TestRocketBroker",
]
