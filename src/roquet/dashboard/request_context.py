"""Request context: the dashboard and the visitor that a request belongs to."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TypeVar

from starlette.requests import HTTPConnection, Request

from roquet.admin import dead_letters
from roquet.admin.client import AdminClient
from roquet.admin.messages import MessageViewer
from roquet.client.config import ClientConfig, ConsumerConfig, ProducerConfig
from roquet.client.producer import Producer
from roquet.client.pull import PullConsumer
from roquet.dashboard.dashboard import Dashboard
from roquet.dashboard.security.sessions import Visitor
from roquet.model.errors import NotFound
from roquet.model.names import DASHBOARD_GROUP, group_fault, topic_fault

VISITOR = "roquet.visitor"
"""Key of the visitor in the scope of a request."""


def dashboard_of(request: HTTPConnection) -> Dashboard:
    """The dashboard that serves a request."""
    dashboard = request.app.state.dashboard
    assert isinstance(dashboard, Dashboard)
    return dashboard


def visitor_of(request: HTTPConnection) -> Visitor:
    """The browser that sent a request, and its user."""
    visitor = request.scope[VISITOR]
    assert isinstance(visitor, Visitor)
    return visitor


def admin_of(request: HTTPConnection) -> AdminClient:
    """A connection to the cluster that asks as the visitor's user."""
    return visitor_of(request).admin


def client_config_of(request: HTTPConnection) -> ClientConfig:
    """Settings for producers and consumers that act as the visitor's user."""
    return visitor_of(request).client


def address_of(request: HTTPConnection) -> str:
    """IP address that a request came from; empty where it is not known."""
    return request.client.host if request.client else ""


def topic_in_path(request: Request) -> str:
    """The topic that an address names. Raises NotFound for a name that no topic can have."""
    return _name_in_path(request, topic_fault)


def group_in_path(request: Request) -> str:
    """The group that an address names. Raises NotFound for a name that no group can have."""
    return _name_in_path(request, group_fault)


def _name_in_path(request: Request, fault_of: Callable[[str], str | None]) -> str:
    name: str = request.path_params["name"]
    if fault := fault_of(name):
        raise NotFound(fault)
    return name


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
