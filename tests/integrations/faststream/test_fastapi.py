"""RocketStreamRouter: handlers and dependencies of FastAPI."""

from typing import Annotated

from fastapi import Depends, FastAPI

from roquet.integrations.faststream import RocketBroker, TestRocketBroker
from roquet.integrations.faststream.fastapi import RocketStreamRouter


def rate() -> int:
    return 2


async def test_handlers_have_dependencies_of_fastapi() -> None:
    router = RocketStreamRouter("127.0.0.1:1")

    @router.subscriber("quotes", group="quotes")
    async def quote(amount: int, factor: Annotated[int, Depends(rate)]) -> int:
        return amount * factor

    async with TestRocketBroker(router.broker) as tested:
        answer = await tested.request(21, "quotes")
    assert await answer.decode() == 42


async def test_the_application_starts_and_stops_the_broker(address: str) -> None:
    router = RocketStreamRouter(address, logger=None)
    publisher = router.publisher("FromApi")
    app = FastAPI()
    app.include_router(router)
    async with app.router.lifespan_context(app):
        assert isinstance(router.broker, RocketBroker)
        assert await router.broker.ping()
        assert await publisher.publish("x")
    assert not await router.broker.ping()
