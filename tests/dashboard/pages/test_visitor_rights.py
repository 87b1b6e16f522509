"""Visitors see and change what the cluster's policies let their own user see and change."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.dashboard.conftest import SECURED, OpenSite, Site

from roquet.admin import access as admin_access
from roquet.admin import topics
from roquet.admin.topics import TopicSettings
from roquet.client.config import ProducerConfig
from roquet.client.producer import Producer
from roquet.dashboard.facts import access
from roquet.dashboard.facts.clients import with_settings_of
from roquet.model.access import PolicyType
from roquet.testing.clock import in_virtual_time

GROUPS = ("Group:roquet-dashboard", "Group:roquet-dlq")


@asynccontextmanager
async def bob_logged_in(open_site: OpenSite) -> AsyncIterator[Site]:
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


@in_virtual_time
async def test_a_visitor_reads_the_topics_that_he_may_read(open_site: OpenSite) -> None:
    async with bob_logged_in(open_site) as it:
        assert "an order" in await it.browser.text("/messages?topic=orders")
        assert "an order" in await it.browser.text("/messages?topic=orders&key=k")
        for query in ("topic=salaries", "topic=salaries&key=k", "topic=salaries&from=2020-01-01"):
            response = await it.browser.get(f"/messages?{query}")
            assert "a salary" not in response.text
            assert "no permission" in response.text


@in_virtual_time
async def test_a_visitor_changes_what_he_may_change(open_site: OpenSite) -> None:
    async with bob_logged_in(open_site) as it:
        form = {"topic": "orders", "body": "x", "csrf": await it.browser.csrf("/messages/new")}
        response = await it.browser.client.post(
            "/messages/new", data=form, headers={"accept": "text/html"}
        )
        assert response.status_code == 502
        assert "no permission" in response.text
        (entry, *_) = it.browser.dashboard.audit.entries
        assert (entry.user, entry.outcome.value) == ("bob", "refused")
        html = await it.browser.text("/access")
        assert "no permission" in html
        assert "inner" not in html


@in_virtual_time
async def test_nobody_reads_anything_without_a_login(open_site: OpenSite) -> None:
    async with bob_logged_in(open_site) as it:
        it.browser.client.cookies.clear()
        for path in ("/messages?topic=orders", "/messages/tail/events?topic=orders", "/audit"):
            response = await it.browser.client.get(path, headers={"accept": "application/json"})
            assert response.status_code == 401


@in_virtual_time
async def test_a_visitor_sees_no_form_that_he_may_not_use(open_site: OpenSite) -> None:
    async with bob_logged_in(open_site) as it:
        await it.browser.dashboard.sampler.step()
        for path in ("/topics", "/topics/orders", "/messages?topic=orders"):
            html = await it.browser.text(path)
            assert 'method="post" action="/topics"' not in html
            assert "Delete…" not in html
            assert "Send one" not in html
        await it.browser.post("/logout")
        await it.browser.post("/login", {"user": "root", "password": "rootsecret"})
        assert "Delete…" in await it.browser.text("/topics/orders")
        assert "Send one" in await it.browser.text("/messages?topic=orders")
        sample = it.browser.dashboard.sampler.latest
        assert sample is not None
        assert sample.access is not None
        assert {user.password for user in sample.access.users.values()} == {"******"}


@in_virtual_time
async def test_a_visitor_is_told_what_is_not_known_instead_of_none(open_site: OpenSite) -> None:
    async with bob_logged_in(open_site) as it:
        for path in ("/groups", "/groups/billing", "/brokers", "/balance?group=billing"):
            text = (await it.browser.get(path)).text
            assert "no permission" in text, path
            assert "no group" not in text
