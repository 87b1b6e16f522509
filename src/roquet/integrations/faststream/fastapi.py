"""FastAPI router of RocketMQ: subscribers and publishers in a FastAPI application.

router = RocketStreamRouter("127.0.0.1:9876")

@router.subscriber("orders", group="billing")
async def bill(order: Order) -> None: ...

app.include_router(router)
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from roquet.integrations import installed_by
from roquet.integrations.faststream.broker import RocketBroker
from roquet.integrations.faststream.publisher import RocketPublisher
from roquet.integrations.faststream.subscriber import RocketSubscriber

with installed_by("pip install 'roquet[faststream,fastapi]'"):
    from fastapi.datastructures import Default
    from faststream._internal.fastapi.router import StreamRouter

RESULT_OPTIONS: Final[Mapping[str, Any]] = {
    **dict.fromkeys(("response_model_include", "response_model_exclude")),
    **dict.fromkeys(("response_model_exclude_unset", "response_model_exclude_defaults"), False),
    "response_model_exclude_none": False,
    "response_model_by_alias": True,
    "response_model": Default(None),
    "dependencies": (),
}
"""FastAPI's options of a result, which FastStream's router leaves without defaults."""


class RocketStreamRouter(StreamRouter[Any]):
    """Starts and stops a RocketBroker with the application, and injects FastAPI's dependencies."""

    broker_class = RocketBroker
    broker: RocketBroker

    def __init__(self, namesrv: str | Sequence[str] | None = None, **options: Any) -> None:
        """Take the options of RocketBroker and of FastAPI's APIRouter."""
        super().__init__(namesrv, **{"context": None, **options})

    def subscriber(  # type: ignore[override]
        self, *topics: str, **options: Any
    ) -> RocketSubscriber:
        """Declare a subscriber, by the options of RocketBroker's and FastAPI's of a result."""
        declared = super().subscriber(*topics, **{**RESULT_OPTIONS, **options})
        return cast("RocketSubscriber", declared)

    def publisher(self, topic: str, **options: Any) -> RocketPublisher:  # type: ignore[override]
        """Declare a publisher, by the options of RocketBroker's."""
        return self.broker.publisher(topic, **options)
