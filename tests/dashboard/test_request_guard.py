from collections.abc import AsyncIterator
from time import perf_counter

import pytest
from tests.dashboard.conftest import HTML, OpenSite

from roquet.dashboard.request_guard import (
    FIELDS_MAX,
    FORM_MAX,
    cookie_name,
    local_path,
    session_cookie,
)
from roquet.testing.clock import in_virtual_time

FORM = {"content-type": "application/x-www-form-urlencoded"}


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "", "localhost:80:80"])
@in_virtual_time
async def test_another_host_name_is_refused(open_site: OpenSite, host: str) -> None:
    async with open_site() as it:
        assert (await it.browser.get("/", host=host)).status_code == 421
        assert (await it.browser.get("/", host="LOCALHOST:8082")).status_code == 200


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
@in_virtual_time
async def test_a_form_of_another_site_is_refused(
    open_site: OpenSite, headers: dict[str, str]
) -> None:
    async with open_site() as it:
        data = {"csrf": await it.browser.csrf(), "name": "orders"}
        response = await it.browser.client.post("/topics", data=data, headers=headers)
        assert response.status_code == 403
        assert it.browser.dashboard.audit.entries == []


@in_virtual_time
async def test_a_form_of_this_site_is_taken(open_site: OpenSite) -> None:
    async with open_site() as it:
        data = {"csrf": await it.browser.csrf(), "name": "orders"}
        own = {**HTML, "sec-fetch-site": "same-origin", "origin": "http://127.0.0.1:8082"}
        response = await it.browser.client.post("/topics", data=data, headers=own)
        assert response.status_code == 303


@in_virtual_time
async def test_a_long_body_is_refused_with_and_without_a_length(open_site: OpenSite) -> None:
    async with open_site() as it:

        async def chunks() -> AsyncIterator[bytes]:
            for _ in range(17):
                yield b"&a=" + b"x" * (FORM_MAX // 16)

        with_length = await it.browser.client.post("/topics", content=b"x" * (FORM_MAX + 1))
        without = await it.browser.client.post("/topics", content=chunks(), headers=FORM)
        assert (with_length.status_code, without.status_code) == (413, 413)


@pytest.mark.parametrize("path", ["/login", "/logout", "/topics", "/messages/new"])
@pytest.mark.parametrize("body", [b"&" * (FIELDS_MAX + 1), b"&" * 15_000_000, b"a=%41" * 14_000])
@in_virtual_time
async def test_a_form_of_very_many_fields_or_bytes_is_not_read(
    open_site: OpenSite, path: str, body: bytes
) -> None:
    async with open_site() as it:
        began = perf_counter()
        response = await it.browser.client.post(path, content=body, headers=FORM)
        # A dashboard without logins refuses their form before it reads it.
        assert response.status_code == (400 if path == "/login" and len(body) < FORM_MAX else 413)
        assert perf_counter() - began < 0.5


@in_virtual_time
async def test_a_long_message_comes_as_a_form_in_parts(open_site: OpenSite) -> None:
    async with open_site() as it:
        await it.browser.post("/topics", {"name": "orders"})
        await it.settle()
        form = {"csrf": await it.browser.csrf(), "topic": "orders", "body": "\u00e9" * 500_000}
        parts = {name: (None, value) for name, value in form.items()}
        sent = await it.browser.client.post("/messages/new", files=parts, follow_redirects=True)
        assert "sent " in sent.text
        refused = await it.browser.client.post("/messages/new", data=form, headers=HTML)
        assert refused.status_code == 413
        assert "multipart/form-data" in refused.text
        assert (await it.browser.client.post("/topics", files=parts)).status_code == 413
        page = await it.browser.text("/messages/new")
        assert 'action="/messages/new" enctype="multipart/form-data"' in page


@in_virtual_time
async def test_the_cookie_is_not_for_scripts_nor_for_other_sites(open_site: OpenSite) -> None:
    async with open_site() as it:
        first = await it.browser.get("/")
        assert "HttpOnly; SameSite=Lax" in first.headers["set-cookie"]
        assert "set-cookie" not in (await it.browser.get("/")).headers
        assert first.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("cookie", ["roquet=a b", "roquet=<x>", "roquet=" + "a" * 101, "=;=", "x"])
@in_virtual_time
async def test_an_odd_cookie_counts_as_none(open_site: OpenSite, cookie: str) -> None:
    async with open_site() as it:
        assert "set-cookie" in (await it.browser.get("/login", cookie=cookie)).headers


@pytest.mark.parametrize(
    "other", ["flag", 'json={"a":1}', 'open="b', "=", 'long="' + '\\"' * 15_000 + '"']
)
@in_virtual_time
async def test_cookies_of_other_servers_on_the_host_do_no_harm(
    open_site: OpenSite, other: str
) -> None:
    async with open_site() as it:
        begun_s = perf_counter()
        for cookie in (f"{other}; roquet=abc", f"roquet=abc; {other}"):
            assert "set-cookie" not in (await it.browser.get("/login", cookie=cookie)).headers
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
