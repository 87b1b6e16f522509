import httpx
import pytest
from starlette.datastructures import FormData
from tests.dashboard.conftest import HTML, Site, open_site

from roquet.broker.settings.definitions import SETTINGS
from roquet.broker.settings.value_formats import HIDDEN
from roquet.dashboard.changes import FIELDS_MAX, form_number, form_text, shown_value
from roquet.dashboard.security.audit_log import VALUE_MAX, AuditOutcome
from roquet.model.errors import UsageError

pytestmark = pytest.mark.virtual_time


async def test_a_change_needs_the_token_of_its_browser(site: Site) -> None:
    await site.browser.get("/")
    for data in ({}, {"csrf": ""}, {"csrf": "0" * 64}):
        response = await site.browser.client.post(
            "/topics", data={**data, "name": "orders"}, headers=HTML
        )
        assert response.status_code == 403
        assert "the form is too old" in response.text
    outcomes = {entry.outcome for entry in site.browser.dashboard.audit.entries}
    assert outcomes == {AuditOutcome.REFUSED}


async def test_the_token_may_be_a_header(site: Site) -> None:
    headers = {**HTML, "x-csrf-token": await site.browser.csrf()}
    response = await site.browser.client.post("/topics", data={"name": "orders"}, headers=headers)
    assert response.status_code == 303


async def test_a_read_only_dashboard_changes_nothing_and_shows_no_forms() -> None:
    async with open_site({"read_only": True}) as it:
        response = await it.browser.post("/topics", {"name": "orders"})
        assert response.status_code == 403
        assert "read-only" in response.text
        assert await it.admin.route("orders") is None
        for path in ("/topics", "/groups", "/brokers/broker-a"):
            assert 'method="post"' not in await it.browser.text(path)


async def test_each_change_is_in_the_audit_log_with_its_outcome(site: Site) -> None:
    await site.browser.post("/topics", {"name": "orders", "password": "secret"})
    await site.browser.post("/topics", {"name": "orders"})
    refused, made = site.browser.dashboard.audit.entries
    assert (made.action, made.outcome) == ("topic.create", AuditOutcome.DONE)
    assert made.details == {"name": "orders"}
    assert refused.outcome is AuditOutcome.REFUSED
    assert "already on" in refused.text


async def test_the_audit_log_has_every_value_and_what_the_address_names(site: Site) -> None:
    form = {"name": "another", "queue": ["a:1", "a:2"], "topic": " " * 600 + "orders"}
    await site.browser.post("/groups/billing/reset", form)
    (entry,) = site.browser.dashboard.audit.entries
    assert entry.details == {"name": "billing", "queue": "a:1, a:2", "topic": "orders"}


async def test_a_form_that_would_fill_the_audit_log_is_refused(site: Site) -> None:
    many = {str(number): "" for number in range(FIELDS_MAX)}
    refused = await site.browser.post("/topics", {**many, "name": "orders"})
    assert refused.status_code == 400
    assert site.browser.dashboard.audit.entries == []
    await site.browser.post("/topics", {"name": "orders", "x" * 9_999: ""})
    (entry,) = site.browser.dashboard.audit.entries
    assert max(map(len, entry.details)) == VALUE_MAX


async def test_a_change_whose_end_is_not_known_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: object) -> None:
        raise ZeroDivisionError

    async with open_site() as it:
        monkeypatch.setattr("roquet.admin.topics.create", fail)
        response: httpx.Response = await it.browser.post("/topics", {"name": "orders"})
        assert response.status_code == 500
        assert "default-src 'none'" in response.headers["content-security-policy"]
        assert "see its log" in response.text
        (entry,) = it.browser.dashboard.audit.entries
        assert (entry.outcome, entry.text) == (AuditOutcome.UNKNOWN, "ZeroDivisionError")


def test_fields_of_a_form_are_texts_and_numbers() -> None:
    form = FormData([("name", " orders "), ("queues", "8"), ("odd", "x")])
    assert form_text(form, "name") == "orders"
    assert form_text(form, "other", "default") == "default"
    assert (form_number(form, "queues"), form_number(form, "other", 3)) == (8, 3)
    with pytest.raises(UsageError, match="other name is missing"):
        form_text(form, "other_name")
    with pytest.raises(UsageError, match="odd 'x' is not a whole number"):
        form_number(form, "odd")


@pytest.mark.parametrize("key", ["innerClientAuthenticationCredentials", "tls_key_password"])
def test_values_of_secret_settings_are_hidden(key: str) -> None:
    assert shown_value(key, "x") == HIDDEN
    assert shown_value(key, "") == ""


def test_every_secret_of_our_broker_is_known() -> None:
    for name, setting in SETTINGS.items():
        for key in (name, *setting.apache_keys):
            assert not setting.is_secret or shown_value(key, "x") == HIDDEN, key
    assert shown_value("brokerName", "a") == "a"
