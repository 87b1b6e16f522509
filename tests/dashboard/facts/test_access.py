from collections.abc import AsyncIterator

import pytest
from tests.dashboard.conftest import SECURED

from roquet.admin import access as admin_access
from roquet.admin.client import AdminClient
from roquet.client.config import ClientConfig
from roquet.dashboard.facts import access
from roquet.model.access import PolicyType
from roquet.model.errors import CallRefused, UsageError
from roquet.testing.cluster import Cluster, cluster


@pytest.fixture
async def running() -> AsyncIterator[Cluster]:
    async with cluster(brokers=2, **SECURED) as running:
        yield running


@pytest.fixture
async def admin(running: Cluster) -> AsyncIterator[AdminClient]:
    config = ClientConfig(access_key="root", secret_key="rootsecret")
    async with AdminClient(running.namesrv_addr, config) as admin:
        yield admin


async def create_bob(admin: AdminClient, *brokers: str, status: str | None = None) -> None:
    addresses = await admin_access.every_broker(admin, brokers)
    call = admin_access.user_call(
        "bob", create=True, password="secret-of-bob", user_type=None, status=status
    )
    await admin_access.change(admin, addresses, call)
    entry = access.entry_info("Topic:orders-*", ["Pub"], ["10.0.0.0/8"], deny=False)
    policy = admin_access.policy_call("bob", [entry], PolicyType.CUSTOM, create=True)
    await admin_access.change(admin, addresses, policy)


async def test_users_and_policies_are_listed_without_passwords(admin: AdminClient) -> None:
    await create_bob(admin)
    facts = await access.overview(admin)
    assert [(user.name, user.user_type, user.entries) for user in facts.users] == [
        ("bob", "Normal", 1),
        ("inner", "Super", 0),
        ("root", "Super", 0),
    ]
    (row,) = facts.policies
    assert (row.user, row.resource, row.actions, row.sources) == (
        "bob",
        "Topic:orders-*",
        ["Pub"],
        ("10.0.0.0/8",),
    )
    assert "secret" not in repr(facts)
    assert facts.differing == []


async def test_brokers_that_a_change_did_not_reach_are_named(admin: AdminClient) -> None:
    await create_bob(admin, "broker-a")
    assert (await access.overview(admin)).differing == ["broker-b"]


async def test_may_somebody_do_something_is_answered_with_the_deciding_entry(
    admin: AdminClient,
) -> None:
    await create_bob(admin)
    yes = await access.may(admin, "bob", "pub", "topic:orders-1", "10.1.2.3")
    assert yes.is_allowed
    assert yes.entry == "Allow Pub on Topic:orders-* from 10.0.0.0/8"
    elsewhere = await access.may(admin, "bob", "Pub", "Topic:orders-1", "11.0.0.1")
    assert (elsewhere.is_allowed, elsewhere.reason) == (False, "no matched policies.")
    stranger = await access.may(admin, "eve", "Pub", "Topic:orders-1", "10.1.2.3")
    assert (stranger.is_allowed, stranger.reason) == (False, "User:eve not found.")
    assert (await access.may(admin, "root", "Pub", "Topic:x", "::1")).is_allowed


async def test_a_disabled_user_may_do_nothing(admin: AdminClient) -> None:
    await create_bob(admin, status="disable")
    answer = await access.may(admin, "bob", "Pub", "Topic:orders-1", "10.1.2.3")
    assert (answer.is_allowed, answer.reason) == (False, "User:bob is disabled.")


@pytest.mark.parametrize(
    ("action", "resource", "source", "error"),
    [
        ("fly", "Topic:a", "127.0.0.1", "no action"),
        ("Pub", "Topic:a*", "127.0.0.1", "not one resource"),
        ("Pub", "a", "127.0.0.1", "not one resource"),
        ("Pub", "Topic:a", "10.0.0.0/8", "no IP address"),
        ("Pub", "Topic:a", "here", "no IP address"),
    ],
)
async def test_questions_that_mean_nothing_are_refused(
    admin: AdminClient, action: str, resource: str, source: str, error: str
) -> None:
    with pytest.raises(UsageError, match=error):
        await access.may(admin, "root", action, resource, source)


@pytest.mark.parametrize(
    ("resource", "actions", "sources", "error"),
    [
        ("orders", ["Pub"], [], "no resource"),
        ("Topic:a", [], [], "at least one action"),
        ("Topic:a", ["Fly"], [], "no action"),
        ("Topic:a", ["Pub"], ["*"], "neither an IP address"),
    ],
)
def test_entries_that_brokers_would_misread_are_refused(
    resource: str, actions: list[str], sources: list[str], error: str
) -> None:
    with pytest.raises(UsageError, match=error):
        access.entry_info(resource, actions, sources, deny=False)


async def test_somebody_without_rights_is_told_by_the_brokers(running: Cluster) -> None:
    config = ClientConfig(access_key="root", secret_key="wrong")
    async with AdminClient(running.namesrv_addr, config) as admin:
        with pytest.raises(CallRefused):
            await access.overview(admin)
