import asyncio

import pytest
from tests.dashboard.conftest import HTML, SECURED, Site, browse, open_site

from roquet.dashboard.security.audit_log import AuditOutcome
from roquet.dashboard.security.logins import EACH_MAX

pytestmark = pytest.mark.virtual_time

ROOT = {"user": "root", "password": "rootsecret"}
LOGIN = {"login": True}


async def test_a_user_of_the_cluster_logs_in_and_out() -> None:
    async with open_site(LOGIN, **SECURED) as it:
        refused = await it.browser.get("/topics?q=a")
        assert refused.status_code == 303
        assert refused.headers["location"] == "/login?next=/topics%3Fq%3Da"
        before = it.browser.client.cookies["roquet"]
        shown = await it.browser.post("/login", {**ROOT, "next": "/topics?q=a"})
        assert shown.status_code == 200
        assert "/topics?q=a" in str(shown.url)
        assert "root" in shown.text
        assert it.browser.client.cookies["roquet"] != before
        assert (await it.browser.post("/logout")).url.path == "/login"
        assert (await it.browser.get("/topics")).status_code == 303
        outcomes = [entry.outcome for entry in it.browser.dashboard.audit.entries]
        assert outcomes == [AuditOutcome.DONE]


async def test_a_wrong_password_is_refused_and_soon_not_even_tried() -> None:
    async with open_site(LOGIN, **SECURED) as it:
        for _ in range(EACH_MAX):
            refused = await it.browser.post("/login", {"user": "root", "password": "x"})
            assert refused.status_code == 403
        late = await it.browser.post("/login", ROOT)
        assert late.status_code == 429
        assert "try again in" in late.text
        await it.clock.sleep(60_000)
        assert (await it.browser.post("/login", ROOT)).status_code == 200
        text = str(it.browser.dashboard.audit.entries)
        assert "rootsecret" not in text


async def test_a_name_that_is_too_long_is_neither_tried_nor_logged() -> None:
    async with open_site(LOGIN, **SECURED) as it:
        refused = await it.browser.post("/login", {"user": "x" * 256, "password": "x"})
        assert refused.status_code == 400
        assert it.browser.dashboard.audit.entries == []


async def test_a_login_that_the_cluster_does_not_answer_is_in_the_audit_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def wait(*_: object) -> None:
        await asyncio.sleep(3_600)

    monkeypatch.setattr("roquet.dashboard.pages.login.check_password", wait)
    async with open_site(LOGIN, **SECURED) as it:
        assert (await it.browser.post("/login", ROOT)).status_code == 504
        (entry,) = it.browser.dashboard.audit.entries
        assert (entry.user, entry.outcome) == ("root", AuditOutcome.UNKNOWN)


async def test_a_login_ends_after_its_time() -> None:
    async with open_site({**LOGIN, "session_ms": 60_000}, **SECURED) as it:
        await it.browser.post("/login", ROOT)
        await it.clock.sleep(59_000)
        assert (await it.browser.get("/topics")).status_code == 200
        await it.clock.sleep(1_000)
        assert (await it.browser.get("/topics")).status_code == 303


async def test_a_login_leads_to_pages_of_the_dashboard_alone() -> None:
    async with open_site(LOGIN, **SECURED) as it:
        for target in ("//evil.example/", "https://evil.example/", "/\\evil.example", "x"):
            data = {**ROOT, "next": target, "csrf": await it.browser.csrf()}
            led = await it.browser.client.post("/login", data=data, headers=HTML)
            assert led.headers["location"] == "/"


async def test_a_cookie_of_before_the_login_is_worth_nothing() -> None:
    async with open_site(LOGIN, **SECURED) as it:
        await it.browser.get("/login")
        before = it.browser.client.cookies["roquet"]
        await it.browser.post("/login", ROOT)
        async with browse(it.browser.dashboard) as thief:
            thief.client.cookies.set("roquet", before, domain="127.0.0.1", path="/")
            assert (await thief.get("/topics")).status_code == 303


async def test_a_dashboard_without_logins_takes_none(site: Site) -> None:
    assert (await site.browser.post("/login", ROOT)).status_code == 400


async def test_programs_are_told_to_log_in() -> None:
    async with open_site(LOGIN, **SECURED) as it:
        assert (await it.browser.client.get("/topics")).status_code == 401
        assert (await it.browser.get("/static/style.css")).status_code == 200
