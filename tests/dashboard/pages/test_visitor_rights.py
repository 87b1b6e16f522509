"""Visitors see and change what the cluster's policies let their own user see and change."""

from collections.abc import AsyncIterator

import pytest
from tests.dashboard.conftest import SECURED, Site, open_site

from roquet.admin import access as admin_access
from roquet.admin import topics
from roquet.admin.topics import TopicSettings
from roquet.client.config import ProducerConfig
from roquet.client.producer import Producer
from roquet.dashboard.facts import access
from roquet.dashboard.request_context import with_settings_of
from roquet.model.access import PolicyType

pytestmark = pytest.mark.virtual_time

GROUPS = ("Group:roquet-dashboard", "Group:roquet-dlq")


@pytest.fixture
async def bob_logged_in() -> AsyncIterator[Site]:
    """A site whose visitor is bob, who may read topic `orders` and nothing of `salaries`."""
    async with open_site({"login": True}, **SECURED) as it:
        for topic in ("orders", "salaries"):
            settings = TopicSettings(read_queues=1, write_queues=1)
            await topics.create(it.admin, topic, settings)
        brokers = await admin_access.every_broker(it.admin)
        call = admin_access.user_call(
            "bob", create=True, password="b0b", user_type=None, status=None
        )
        await admin_access.change(it.admin, brokers, call)
        entries = [access.entry_info("Topic:orders", ["Sub", "Get"], [], deny=False)]
        entries += [access.entry_info(group, ["Sub"], [], deny=False) for group in GROUPS]
        policy = admin_access.policy_call("bob", entries, PolicyType.CUSTOM, create=True)
        await admin_access.change(it.admin, brokers, policy)
        await it.settle()
        config = with_settings_of(it.client_config, ProducerConfig)
        async with Producer(it.namesrv, config=config) as producer:
            await producer.send("orders", b"an order", keys=("k",))
            await producer.send("salaries", b"a salary", keys=("k",))
        response = await it.browser.post("/login", {"user": "bob", "password": "b0b"})
        assert response.status_code == 200
        yield it


async def test_a_visitor_reads_the_topics_that_he_may_read(bob_logged_in: Site) -> None:
    assert "an order" in await bob_logged_in.browser.text("/messages?topic=orders")
    assert "an order" in await bob_logged_in.browser.text("/messages?topic=orders&key=k")
    for query in ("topic=salaries", "topic=salaries&key=k", "topic=salaries&from=2020-01-01"):
        response = await bob_logged_in.browser.get(f"/messages?{query}")
        assert "a salary" not in response.text
        assert "no permission" in response.text


async def test_a_visitor_changes_what_he_may_change(bob_logged_in: Site) -> None:
    form = {
        "topic": "orders",
        "body": "x",
        "csrf": await bob_logged_in.browser.csrf("/messages/new"),
    }
    response = await bob_logged_in.browser.client.post(
        "/messages/new", data=form, headers={"accept": "text/html"}
    )
    assert response.status_code == 403
    assert "no permission" in response.text
    (entry, *_) = bob_logged_in.browser.dashboard.audit.entries
    assert (entry.user, entry.outcome.value) == ("bob", "refused")
    refused = await bob_logged_in.browser.get("/access")
    assert refused.status_code == 403
    assert "<h1>Not allowed</h1>" in refused.text
    assert "no permission" in refused.text
    assert "inner" not in refused.text


async def test_nobody_reads_anything_without_a_login(bob_logged_in: Site) -> None:
    bob_logged_in.browser.client.cookies.clear()
    for path in ("/messages?topic=orders", "/messages/tail/events?topic=orders", "/audit"):
        response = await bob_logged_in.browser.client.get(
            path, headers={"accept": "application/json"}
        )
        assert response.status_code == 401


async def test_a_visitor_sees_no_form_that_he_may_not_use(bob_logged_in: Site) -> None:
    await bob_logged_in.browser.dashboard.sampler.step()
    for path in ("/topics", "/topics/orders", "/messages?topic=orders"):
        html = await bob_logged_in.browser.text(path)
        assert 'method="post" action="/topics"' not in html
        assert "Delete…" not in html
        assert "Send one" not in html
    await bob_logged_in.browser.post("/logout")
    await bob_logged_in.browser.post("/login", {"user": "root", "password": "rootsecret"})
    assert "Delete…" in await bob_logged_in.browser.text("/topics/orders")
    assert "Send one" in await bob_logged_in.browser.text("/messages?topic=orders")
    sample = bob_logged_in.browser.dashboard.sampler.latest
    assert sample is not None
    assert sample.access is not None
    assert {user.password for user in sample.access.users.values()} == {"******"}


async def test_the_overview_of_a_visitor_has_what_he_may_read(bob_logged_in: Site) -> None:
    browser = bob_logged_in.browser
    await browser.dashboard.sampler.step()
    browser.dashboard.audit.begin(
        at_ms=1, user="root", address="h", action="user.create", details={"user": "mallory"}
    )
    facts = await browser.facts("/")
    assert (facts["sees_cluster"], facts["topics"], facts["groups"]) == (False, 1, 0)
    assert (facts["broker_lines"], facts["problems"], facts["changes"]) == ([], [], [])
    assert facts["in_per_s"] is facts["out_per_s"] is None
    html = await browser.text("/")
    for hidden in ("salaries", "mallory", "broker-a", "data-points", "First steps"):
        assert hidden not in html
    await browser.post("/logout")
    await browser.post("/login", {"user": "root", "password": "rootsecret"})
    facts = await browser.facts("/")
    assert (facts["sees_cluster"], facts["topics"]) == (True, 2)
    assert [one["text"] for one in facts["changes"]] == ["user.create mallory"]


async def test_a_visitor_is_told_what_is_not_known_instead_of_none(bob_logged_in: Site) -> None:
    for path in ("/groups", "/groups/billing", "/brokers", "/balance?group=billing"):
        text = (await bob_logged_in.browser.get(path)).text
        assert "no permission" in text, path
        assert "no group" not in text
