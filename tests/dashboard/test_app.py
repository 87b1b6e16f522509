from typing import Any

import pytest
from tests.dashboard.conftest import Site, open_site

from roquet.dashboard.app import PAGES, application
from roquet.dashboard.changes import is_change
from roquet.dashboard.request_guard import IN_PARTS, URL_ENCODED

pytestmark = pytest.mark.virtual_time

LOGINS = {"/login", "/logout"}


def test_every_post_is_a_change_or_a_login() -> None:
    posts = [r for m in PAGES for r in m.ROUTES if "POST" in (r.methods or ())]
    assert [r.path for r in posts if not is_change(r.endpoint) and r.path not in LOGINS] == []
    changes = [r for m in PAGES for r in m.ROUTES if is_change(r.endpoint)]
    assert [r.path for r in changes if r.methods != {"POST"}] == []


async def test_an_unknown_address_is_a_page_that_says_so(site: Site) -> None:
    response = await site.browser.get("/nowhere")
    assert response.status_code == 404
    assert "there is no such page" in response.text


@pytest.mark.parametrize("path", ["/login", "/logout", "/topics"])
@pytest.mark.parametrize("kind", [URL_ENCODED, f"{IN_PARTS}; boundary=x"])
async def test_a_form_that_is_cut_off_is_no_defect(
    caplog: pytest.LogCaptureFixture, path: str, kind: str
) -> None:
    async with open_site() as it:
        parts = iter([{"type": "http.request", "body": b"a=", "more_body": True}])

        async def receive() -> Any:
            return next(parts, {"type": "http.disconnect"})

        async def send(_message: Any) -> None:
            pass

        headers = [(b"host", b"127.0.0.1"), (b"content-type", kind.encode())]
        scope = {
            "type": "http", "method": "POST", "path": path, "raw_path": path.encode(),
            "query_string": b"", "headers": headers, "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 8082), "scheme": "http", "root_path": "",
        }  # fmt: skip
        await application(it.browser.dashboard)(scope, receive, send)
    assert [r.message for r in caplog.records if r.levelname in {"ERROR", "WARNING"}] == []


@pytest.mark.parametrize(
    "path",
    [
        "/static/%2e%2e/app.py",
        "/static/..%2fapp.py",
        "/static/%2e%2e%2f%2e%2e%2f%2e%2e%2fetc/passwd",
        "/static/%2fetc%2fpasswd",
        "/static//etc/passwd",
        "/static/..%5capp.py",
        "/static/style.css%00.png",
        "/static/%00",
        "/static/",
        "/topics/..%2f..%2fetc%2fpasswd",
        "/groups/%2e%2e%2f%2e%2e",
        "/brokers/..%2f..%2fconfig",
        "/dead-letters/%2e%2e/export",
        "/messages/body?topic=..%2f..%2fetc%2fpasswd&broker=..%2f&queue=0&offset=0",
    ],
)
async def test_no_address_leads_out_of_the_pages_and_the_static_files(
    site: Site, path: str
) -> None:
    response = await site.browser.get(path)
    assert response.status_code in (400, 404), response.text
    assert "root:" not in response.text
    assert "import " not in response.text


@pytest.mark.parametrize("path", ["/", "/static/style.css", "/nowhere"])
async def test_each_response_forbids_foreign_scripts(site: Site, path: str) -> None:
    policy = (await site.browser.get(path)).headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
