from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.dashboard.conftest import SECURED, Site, open_site
from tests.dashboard.pages.orders_topic import HOSTILE, MARKS

pytestmark = pytest.mark.virtual_time

BOB = {"user": "bob", "kind": "create", "password": "secret-of-bob"}
ENTRY = {
    "user": "bob",
    "resource": "Topic:orders-*",
    "actions": ["Pub", "Sub"],
    "decision": "Allow",
}


@pytest.fixture
async def secured() -> AsyncIterator[Site]:
    """A cluster with access control, and a dashboard that asks as its super user."""
    async with open_site(None, **SECURED) as it:
        await it.settle()
        yield it


async def test_users_and_policies_are_made_and_taken_away(secured: Site) -> None:
    response = await secured.browser.post("/access/users", BOB)
    assert "user bob created, on broker-a, broker-b" in response.text
    response = await secured.browser.post("/access/policies", ENTRY)
    assert "policy of bob for Topic:orders-* saved" in response.text
    html = await secured.browser.text("/access")
    assert "secret-of-bob" not in html
    assert "Pub, Sub" in html
    gone = {"user": "bob", "resource": "Topic:orders-*", "policy": "Custom"}
    await secured.browser.post("/access/policies/delete", gone)
    assert (await secured.browser.facts("/access"))["facts"]["policies"] == []
    response = await secured.browser.post("/access/users/delete", {"user": "bob", "confirm": "bo"})
    assert response.status_code == 400
    await secured.browser.post("/access/users/delete", {"user": "bob", "confirm": "bob"})
    users = (await secured.browser.facts("/access"))["facts"]["users"]
    assert [user["name"] for user in users] == ["inner", "root"]
    assert "secret-of-bob" not in repr(secured.browser.dashboard.audit.entries)


@pytest.mark.parametrize(
    ("path", "form"),
    [
        ("users", {"kind": "change", "status": "disable"}),
        ("users/delete", {"confirm": "rob"}),
        ("policies", {**ENTRY, "user": "rob"}),
        ("policies/delete", {"resource": "Topic:orders-*", "policy": "Custom"}),
    ],
)
async def test_an_unknown_user_is_not_found(secured: Site, path: str, form: dict[str, Any]) -> None:
    response = await secured.browser.post(f"/access/{path}", {"user": "rob", **form})
    assert response.status_code == 404
    assert "there is no user &#39;rob&#39;" in response.text


async def test_a_user_is_not_created_twice(secured: Site) -> None:
    await secured.browser.post("/access/users", BOB)
    response = await secured.browser.post("/access/users", BOB)
    assert response.status_code == 400
    assert "there is a user &#39;bob&#39; already" in response.text


async def test_a_user_is_changed_where_a_field_is_filled(secured: Site) -> None:
    await secured.browser.post("/access/users", BOB)
    change = {"user": "bob", "kind": "change", "status": "disable"}
    await secured.browser.post("/access/users", change)
    users = {one["name"]: one for one in (await secured.browser.facts("/access"))["facts"]["users"]}
    assert (users["bob"]["status"], users["bob"]["user_type"]) == ("disable", "Normal")


async def test_may_somebody_do_something_is_answered_in_words(secured: Site) -> None:
    await secured.browser.post("/access/users", BOB)
    await secured.browser.post("/access/policies", ENTRY)
    query = "user=bob&action=Pub&resource=Topic:orders-1&source=10.0.0.1"
    html = await secured.browser.text(f"/access?{query}")
    assert "bob may Pub on Topic:orders-1 from 10.0.0.1" in html
    assert "Allow Pub, Sub on Topic:orders-* from anywhere" in html
    html = await secured.browser.text(f"/access?{query.replace('Pub', 'Delete')}")
    assert "bob may not Delete" in html
    facts = await secured.browser.facts(f"/access?{query}")
    assert facts["answer"]["is_allowed"] is True
    html = await secured.browser.text("/access?user=bob&action=Pub&resource=orders")
    assert "is not one resource" in html


@pytest.mark.parametrize("field", ["user", "action", "resource", "source"])
async def test_what_somebody_asks_is_escaped(secured: Site, field: str) -> None:
    query = {"user": "bob", "action": "Pub", "resource": "Topic:a", "source": "::1"}
    query[field] = HOSTILE
    response = await secured.browser.client.get(
        "/access", params=query, headers={"accept": "text/html"}
    )
    assert response.status_code == 200
    assert not any(mark in response.text for mark in MARKS)


@pytest.mark.parametrize(
    ("path", "form", "error"),
    [
        ("users", {"user": "bob", "kind": "create"}, "needs a password"),
        ("users", {"user": "bob", "kind": "change", "user_type": "God"}, "is none of"),
        ("users", {"user": "bob", "password": "x"}, "choose one for kind: create or change"),
        ("policies", {**ENTRY, "decision": ""}, "choose one for decision: Allow or Deny"),
        ("policies", {**ENTRY, "resource": "orders"}, "is no resource"),
        ("policies", {**ENTRY, "policy": "x"}, "is none of"),
        ("policies/delete", {"user": "bob", "resource": "Bogus:x"}, "is no resource"),
    ],
)
async def test_changes_that_brokers_would_misread_are_refused(
    secured: Site, path: str, form: dict[str, Any], error: str
) -> None:
    response = await secured.browser.post(f"/access/{path}", form)
    assert response.status_code == 400
    assert error in response.text


async def test_a_cluster_without_users_is_no_error(site: Site) -> None:
    html = await site.browser.text("/access")
    assert "Access control is off" in html
    assert "authenticationEnabled = true" in html
    assert 'class="problem"' not in html
    facts = await site.browser.facts("/access")
    assert (facts["is_off"], facts["facts"]) == (True, None)
