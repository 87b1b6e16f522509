import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from roquet.admin.client import AdminClient
from roquet.client.config import ClientConfig
from roquet.dashboard.app import application
from roquet.dashboard.config import DashboardConfig
from roquet.dashboard.dashboard import Dashboard
from roquet.dashboard.server import open_dashboard
from roquet.testing.clock import this_loop
from roquet.testing.cluster import Cluster, cluster
from roquet.wire.signing import Credentials

SECURED: dict[str, Any] = {
    "authentication_enabled": True,
    "authorization_enabled": True,
    "initial_user": Credentials(access_key="root", secret_key="rootsecret"),
    "inner_credentials": Credentials(access_key="inner", secret_key="innersecret"),
}
"""Settings of brokers that know the super user root and refuse everybody else."""

HTML = {"accept": "text/html"}
JSON = {"accept": "application/json"}


class Browser:
    """Asks the pages of a dashboard without a network, and sends forms with their CSRF token."""

    def __init__(self, dashboard: Dashboard, client: httpx.AsyncClient) -> None:
        self.dashboard = dashboard
        self.client = client

    async def get(self, path: str, **headers: str) -> httpx.Response:
        """A page, as a browser asks for it."""
        return await self.client.get(path, headers={**HTML, **headers})

    async def text(self, path: str) -> str:
        """The HTML of a page that has to be there."""
        response = await self.get(path)
        assert response.status_code == 200, response.text
        return response.text

    async def facts(self, path: str) -> Any:
        """The facts of a page as JSON."""
        response = await self.client.get(path, headers=JSON)
        assert response.status_code == 200, response.text
        return response.json()

    async def csrf(self, path: str = "/login") -> str:
        found = re.search(r'name="csrf" value="([0-9a-f]+)"', (await self.get(path)).text)
        assert found is not None
        return found[1]

    async def post(self, path: str, form: Mapping[str, Any] | None = None) -> httpx.Response:
        """Send a form; the response is that of the page to which it leads."""
        data = {"csrf": await self.csrf(), **(form or {})}
        return await self.client.post(path, data=data, headers=HTML, follow_redirects=True)


class Site:
    """Two brokers in virtual time, an admin client, and a browser of their dashboard."""

    def __init__(
        self, running: Cluster, admin: AdminClient, browser: Browser, client: ClientConfig
    ) -> None:
        self.running = running
        self.admin = admin
        self.browser = browser
        self.namesrv = running.namesrv_addr
        self.clock = this_loop().clock
        self.client_config = client

    async def settle(self) -> None:
        """Wait until the name server knows of changes."""
        await self.clock.sleep(1_000)


@asynccontextmanager
async def browse(dashboard: Dashboard) -> AsyncIterator[Browser]:
    transport = httpx.ASGITransport(application(dashboard), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8082") as client:
        yield Browser(dashboard, client)


@asynccontextmanager
async def open_site(
    settings: Mapping[str, Any] | None = None, **broker: Any
) -> AsyncIterator[Site]:
    """Start a cluster with settings of its brokers, and a dashboard with `settings`.

    Where brokers have an initial user, the dashboard is that user.
    """
    clock = this_loop().clock
    user: Credentials | None = broker.get("initial_user")
    client = ClientConfig(
        clock=clock,
        access_key=user.access_key if user else None,
        secret_key=user.secret_key if user else None,
    )
    async with (
        cluster(brokers=2, clock=clock, auto_create_topic=False, **broker) as running,
        AdminClient(running.namesrv_addr, client) as admin,
        open_dashboard(
            DashboardConfig(name_servers=running.namesrv_addr, **(settings or {})), client
        ) as dashboard,
        browse(dashboard) as browser,
    ):
        yield Site(running, admin, browser, client)


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with open_site() as site:
        yield site
