from collections.abc import AsyncIterator
from time import perf_counter

import pytest
from tests.dashboard.conftest import HTML, Site

from roquet.dashboard.request_guard import (
    FIELDS_MAX,
    FORM_MAX,
    cookie_name,
    local_path,
    session_cookie,
)

pytestmark = pytest.mark.virtual_time

FORM = {"content-type": "application/x-www-form-urlencoded"}


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "", "localhost:80:80"])
async def test_another_host_name_is_refused(site: Site, host: str) -> None:
    assert (await site.browser.get("/", host=host)).status_code == 421
    assert (await site.browser.get("/", host="LOCALHOST:8082")).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://["},
        {"origin": "http://127.0.0.1:8083"},
    ],
)
async def test_a_form_of_another_site_is_refused(site: Site, headers: dict[str, str]) -> None:
    data = {"csrf": await site.browser.csrf(), "name": "orders"}
    response = await site.browser.client.post("/topics", data=data, headers=headers)
    assert response.status_code == 403
    assert site.browser.dashboard.audit.entries == []


async def test_a_form_of_this_site_is_taken(site: Site) -> None:
    data = {"csrf": await site.browser.csrf(), "name": "orders"}
    own = {**HTML, "sec-fetch-site": "same-origin", "origin": "http://127.0.0.1:8082"}
    response = await site.browser.client.post("/topics", data=data, headers=own)
    assert response.status_code == 303


async def test_a_long_body_is_refused_with_and_without_a_length(site: Site) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(17):
            yield b"&a=" + b"x" * (FORM_MAX // 16)

    with_length = await site.browser.client.post("/topics", content=b"x" * (FORM_MAX + 1))
    without = await site.browser.client.post("/topics", content=chunks(), headers=FORM)
    assert (with_length.status_code, without.status_code) == (413, 413)


@pytest.mark.parametrize("path", ["/login", "/logout", "/topics", "/messages/new"])
@pytest.mark.parametrize("body", [b"&" * (FIELDS_MAX + 1), b"&" * 15_000_000, b"a=%41" * 14_000])
async def test_a_form_of_very_many_fields_or_bytes_is_not_read(
    site: Site, path: str, body: bytes
) -> None:
    began = perf_counter()
    response = await site.browser.client.post(path, content=body, headers=FORM)
    # A dashboard without logins refuses their form before it reads it.
    assert response.status_code == (400 if path == "/login" and len(body) < FORM_MAX else 413)
    assert perf_counter() - began < 0.5


async def test_a_long_message_comes_as_a_form_in_parts(site: Site) -> None:
    await site.browser.post("/topics", {"name": "orders"})
    await site.settle()
    form = {"csrf": await site.browser.csrf(), "topic": "orders", "body": "\u00e9" * 500_000}
    parts = {name: (None, value) for name, value in form.items()}
    sent = await site.browser.client.post("/messages/new", files=parts, follow_redirects=True)
    assert "sent " in sent.text
    refused = await site.browser.client.post("/messages/new", data=form, headers=HTML)
    assert refused.status_code == 413
    assert "multipart/form-data" in refused.text
    assert (await site.browser.client.post("/topics", files=parts)).status_code == 413
    page = await site.browser.text("/messages/new")
    assert 'action="/messages/new" enctype="multipart/form-data"' in page


async def test_the_cookie_is_not_for_scripts_nor_for_other_sites(site: Site) -> None:
    first = await site.browser.get("/")
    assert "HttpOnly; SameSite=Lax" in first.headers["set-cookie"]
    assert "set-cookie" not in (await site.browser.get("/")).headers
    assert first.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("cookie", ["roquet=a b", "roquet=<x>", "roquet=" + "a" * 101, "=;=", "x"])
async def test_an_odd_cookie_counts_as_none(site: Site, cookie: str) -> None:
    assert "set-cookie" in (await site.browser.get("/login", cookie=cookie)).headers


@pytest.mark.parametrize(
    "other", ["flag", 'json={"a":1}', 'open="b', "=", 'long="' + '\\"' * 15_000 + '"']
)
async def test_cookies_of_other_servers_on_the_host_do_no_harm(site: Site, other: str) -> None:
    begun_s = perf_counter()
    for cookie in (f"{other}; roquet=abc", f"roquet=abc; {other}"):
        assert "set-cookie" not in (await site.browser.get("/login", cookie=cookie)).headers
    assert perf_counter() - begun_s < 0.5


def test_with_tls_the_cookie_is_for_this_host_alone() -> None:
    assert cookie_name(is_secure=True).startswith("__Host-")
    cookie = session_cookie("t", is_secure=True, lifetime_s=60)
    assert cookie == "__Host-roquet=t; Path=/; HttpOnly; SameSite=Lax; Secure; Max-Age=60"


@pytest.mark.parametrize(
    "text", ["//x", "/\\x", "\\x", "x", "", "https://x/", "/a\nb", "/\t/[", "/a\\b"]
)
def test_only_paths_of_ours_are_gone_on_to(text: str) -> None:
    assert local_path(text) == "/"
    assert local_path("/topics?q=1") == "/topics?q=1"
