"""Clients of pages: consumers and producers that act as the visitor, each for one request."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TypeVar

from starlette.requests import HTTPConnection

from roquet.admin import dead_letters
from roquet.admin.messages import MessageViewer
from roquet.client.config import ClientConfig, ConsumerConfig, ProducerConfig
from roquet.client.producer import Producer
from roquet.client.pull import PullConsumer
from roquet.dashboard.request_context import client_config_of, dashboard_of
from roquet.model.names import DASHBOARD_GROUP

C = TypeVar("C", bound=ClientConfig)


@asynccontextmanager
async def open_reader(request: HTTPConnection) -> AsyncIterator[PullConsumer]:
    """Open a consumer that reads queues as the visitor's user, and joins in nothing."""
    namesrv = dashboard_of(request).settings.name_servers
    config = with_settings_of(client_config_of(request), ConsumerConfig)
    async with MessageViewer(namesrv, group=DASHBOARD_GROUP, config=config) as reader:
        yield reader


def open_letter_reader(request: HTTPConnection) -> AbstractAsyncContextManager[PullConsumer]:
    """Open the consumer of dead letters as the visitor's user."""
    namesrv = dashboard_of(request).settings.name_servers
    config = with_settings_of(client_config_of(request), ConsumerConfig)
    return dead_letters.open_reader(namesrv, config)


@asynccontextmanager
async def open_producer(request: HTTPConnection) -> AsyncIterator[Producer]:
    """Open a producer that sends as the visitor's user."""
    namesrv = dashboard_of(request).settings.name_servers
    config = with_settings_of(client_config_of(request), ProducerConfig)
    async with Producer(namesrv, group=DASHBOARD_GROUP, config=config) as producer:
        yield producer


def with_settings_of(client: ClientConfig, kind: type[C]) -> C:
    """Settings of another kind of client, with all that they have in common with `client`."""
    return kind(**{name: getattr(client, name) for name in ClientConfig.__struct_fields__})
