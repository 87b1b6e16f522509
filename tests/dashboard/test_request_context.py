from starlette.requests import Request
from tests.dashboard.conftest import SECURED, open_site

from roquet.client.config import ClientConfig, ConsumerConfig, ProducerConfig
from roquet.dashboard.app import application
from roquet.dashboard.request_context import (
    VISITOR,
    address_of,
    admin_of,
    client_config_of,
    dashboard_of,
    visitor_of,
    with_settings_of,
)
from roquet.testing.clock import in_virtual_time


@in_virtual_time
async def test_a_request_knows_its_dashboard_and_its_visitor() -> None:
    async with open_site({"login": True}, **SECURED) as it:
        dashboard = it.browser.dashboard
        visitor = await dashboard.sessions.open("root", it.client_config, 0)
        app = application(dashboard)
        scope = {"type": "http", "app": app, VISITOR: visitor, "client": ("192.0.2.1", 5)}
        request = Request(scope)
        assert dashboard_of(request) is dashboard
        assert visitor_of(request).user == "root"
        assert admin_of(request) is visitor.admin is not dashboard.admin
        assert client_config_of(request) is visitor.client
        assert address_of(request) == "192.0.2.1"
        assert address_of(Request({**scope, "client": None})) == ""


def test_clients_of_a_page_ask_as_its_visitor() -> None:
    client = ClientConfig(access_key="bob", secret_key="secret-of-bob", timeout_ms=7)
    for kind in (ConsumerConfig, ProducerConfig):
        config = with_settings_of(client, kind)
        assert (config.access_key, config.secret_key) == ("bob", "secret-of-bob")
        assert (config.timeout_ms, config.clock) == (7, client.clock)
