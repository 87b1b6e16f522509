"""FastAPI: a producer and consumers that live as long as an application.

    mq = RocketMQ("127.0.0.1:9876")
    app = FastAPI(lifespan=mq.lifespan)
    app.include_router(mq.readiness())

    @mq.handler("orders", group="billing")
    async def bill(message: ReceivedMessage) -> None: ...

    @app.post("/orders")
    async def order(producer: Annotated[Producer, Depends(mq.producer)]) -> None: ...

Other frameworks whose applications have a lifespan enter it in the same way.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, TypeVar

from roquet.admin.client import AdminClient
from roquet.client import MessageHandler, Producer, ProducerConfig, PushConsumer, ReceivedMessage
from roquet.client.config import ConsumerConfig
from roquet.client.consumer import Consumer
from roquet.integrations import installed_by
from roquet.log_records import logger
from roquet.model.errors import RoquetError, UsageError
from roquet.model.subscription import ALL

with installed_by("pip install 'roquet[fastapi]'"):
    from fastapi import APIRouter, Response

log = logger(__name__)

H = TypeVar("H", bound=MessageHandler[ReceivedMessage])
M = TypeVar("M", bound=ReceivedMessage)


class RocketMQ:
    """The producer of an application, and its consumers.

    They are opened and closed with it, in each process of a server that has several, and on its
    event loop. Consumers end first: their handlers may still send.
    """

    def __init__(
        self, namesrv: str | Sequence[str] | None = None, *, producer: ProducerConfig | None = None
    ) -> None:
        self._namesrv = namesrv
        self._config = producer
        self._consumers: list[tuple[Callable[[], Consumer[Any]], MessageHandler[Any]]] = []
        self._open: tuple[Producer, AdminClient] | None = None
        self._running: list[tuple[Consumer[Any], asyncio.Task[None]]] = []

    def handler(
        self,
        topic: str | Sequence[str],
        *,
        group: str,
        tags: str = ALL,
        sql: str | None = None,
        config: ConsumerConfig | None = None,
    ) -> Callable[[H], H]:
        """Call the decorated function with every message, as `PushConsumer.run` does."""

        def make() -> PushConsumer:
            return PushConsumer(
                self._namesrv, group=group, topic=topic, tags=tags, sql=sql, config=config
            )

        def register(function: H) -> H:
            self.consume(make, function)
            return function

        return register

    def consume(self, make: Callable[[], Consumer[M]], handler: MessageHandler[M]) -> None:
        """Run a handler on a consumer of any kind, which `make` constructs at each start."""
        self._consumers.append((make, handler))

    async def producer(self) -> Producer:
        """The open producer: a dependency. Raises UsageError outside of the lifespan."""
        if self._open is None:
            raise UsageError("no producer is open: FastAPI(lifespan=mq.lifespan) opens it")
        return self._open[0]

    @asynccontextmanager
    async def lifespan(self, _app: object) -> AsyncGenerator[None]:
        """Open the producer and start the consumers; end them after the application.

        A lifespan of one's own enters it: `async with mq.lifespan(app):`.
        """
        if self._open is not None:
            raise UsageError("this lifespan is entered already: each application has its own")
        async with (
            AdminClient(self._namesrv, self._config) as admin,
            Producer(self._namesrv, config=self._config) as producer,
        ):
            self._open = producer, admin
            try:
                async with AsyncExitStack() as stack:
                    for make, handler in self._consumers:
                        self._start(stack, await stack.enter_async_context(make()), handler)
                    yield
            finally:
                self._open, self._running = None, []

    def _start(
        self, stack: AsyncExitStack, consumer: Consumer[M], handler: MessageHandler[M]
    ) -> None:
        running = asyncio.create_task(consumer.run(handler), name=f"run of {consumer.group}")
        self._running.append((consumer, running))
        stack.push_async_callback(_end, consumer, running)

    async def faults(self) -> list[str]:
        """Reasons why the application is not ready; empty when it can send and consume."""
        if self._open is None:
            return ["the application has not started, or ends"]
        # Not `health()`, which is no by a topic that does not exist: its first message may have to
        # come by a request to this application.
        faults = [
            f"the consumer of group {consumer.group} has ended: {_error(running) or 'stopped'}"
            for consumer, running in self._running
            if running.done()
        ]
        try:
            await self._open[1].cluster()
        except RoquetError as error:
            faults.append(f"no broker can be reached: {error}")
        return faults

    def readiness(self, path: str = "/readyz") -> APIRouter:
        """A route for probes: status 200 when the application can send and consume, else 503."""
        router = APIRouter()

        @router.get(path)
        async def ready(response: Response) -> dict[str, Any]:
            """Tell whether messages can be sent and consumed."""
            faults = await self.faults()
            response.status_code = 503 if faults else 200
            return {"ready": not faults, "faults": faults}

        return router


def _error(running: asyncio.Task[None]) -> BaseException | None:
    return None if running.cancelled() else running.exception()


async def _end(consumer: Consumer[Any], running: asyncio.Task[None]) -> None:
    """Hand out nothing more, and give running handlers `close_timeout_ms` to end."""
    await consumer.close()
    await asyncio.wait([running])
    if error := _error(running):
        log.error("the consumer of group %s had ended", consumer.group, exc_info=error)
