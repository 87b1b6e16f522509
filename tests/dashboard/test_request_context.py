from starlette.requests import Request
from tests.dashboard.conftest import SECURED, OpenSite

from roquet.dashboard.app import application
from roquet.dashboard.request_context import (
    VISITOR,
    address_of,
    admin_of,
    client_config_of,
    dashboard_of,
    visitor_of,
)
from roquet.testing.clock import in_virtual_time


@in_virtual_time
async def test_a_request_knows_its_dashboard_and_its_visitor(open_site: OpenSite) -> None:
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
