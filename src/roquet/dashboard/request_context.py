"""Request context: the dashboard and the visitor that a request belongs to."""

from starlette.requests import HTTPConnection

from roquet.admin.client import AdminClient
from roquet.client.config import ClientConfig
from roquet.dashboard.dashboard import Dashboard
from roquet.dashboard.security.sessions import Visitor

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
