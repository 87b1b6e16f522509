"""Users and policies of all brokers of a cluster."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from roquet.access.translation import AccessDocument, tables_of
from roquet.admin import access
from roquet.admin.client import AdminClient
from roquet.client.config import ClientConfig
from roquet.model.access import AccessTables, Action, PolicyType, Resource, ResourceType
from roquet.model.errors import CallRefused, RoquetError, UsageError
from roquet.rules.access.decision import AccessRequest, decide
from roquet.testing.cluster import Cluster, cluster
from roquet.wire.calls.access import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from roquet.wire.signing import Credentials

SECURED: dict[str, Any] = {
    "authentication_enabled": True,
    "authorization_enabled": True,
    "initial_user": Credentials(access_key="root", secret_key="rootsecret"),
    "inner_credentials": Credentials(access_key="inner", secret_key="innersecret"),
}
KEYS: dict[str, Any] = {"access_key": "root", "secret_key": "rootsecret"}


@pytest.fixture
async def running() -> AsyncIterator[Cluster]:
    async with cluster(brokers=2, **SECURED) as running:
        yield running


@pytest.fixture
async def admin(running: Cluster) -> AsyncIterator[AdminClient]:
    async with AdminClient(running.namesrv_addr, ClientConfig(**KEYS)) as admin:
        yield admin


@pytest.fixture
async def brokers(admin: AdminClient) -> Mapping[str, str]:
    return await access.every_broker(admin)


def entry(resource: str, *actions: str) -> PolicyEntryInfo:
    return PolicyEntryInfo(resource=resource, actions=list(actions), decision="Allow")


def created(name: str) -> Any:
    return access.user_call(name, create=True, password="p", user_type=None, status=None)


async def test_a_change_is_made_on_every_broker(
    admin: AdminClient, brokers: Mapping[str, str]
) -> None:
    assert await access.change(admin, brokers, created("bob")) == ["broker-a", "broker-b"]
    call = access.policy_call("bob", [entry("Topic:a", "Pub")], PolicyType.CUSTOM, create=True)
    await access.change(admin, brokers, call)
    for address in brokers.values():
        tables = access.known_tables(await access.document(admin, address))
        request = AccessRequest(Resource(ResourceType.TOPIC, "a"), (Action.PUB,))
        assert decide(tables, "bob", request, "127.0.0.1").is_allowed
    found = await access.users(admin, brokers["broker-a"], "bo")
    assert [user.username for user in found] == ["bob"]
    await access.change(admin, brokers, access.delete_user_call("bob"))
    assert await access.acls(admin, brokers["broker-b"]) == []


async def test_a_change_that_some_brokers_refuse_says_where_it_was_made(
    admin: AdminClient, brokers: Mapping[str, str]
) -> None:
    only = await access.every_broker(admin, ["broker-b"])
    await access.change(admin, only, created("bob"))
    with pytest.raises(RoquetError, match="done on broker-a, but not everywhere: broker-b"):
        await access.change(admin, brokers, created("bob"))
    with pytest.raises(CallRefused, match="The user is existed"):
        await access.change(admin, brokers, created("bob"))
    with pytest.raises(UsageError, match="there is no broker 'broker-x'"):
        await access.every_broker(admin, ["broker-x"])


def document(*entries: PolicyEntryInfo) -> AccessTables:
    users = [UserInfo(username="bob", password="p"), UserInfo(username="root", password="new")]
    acl = AclInfo(subject="User:bob", policies=[PolicyInfo(entries=list(entries))])
    return tables_of(AccessDocument(users=users, acls=[acl]))


async def test_an_import_makes_users_and_policies_those_of_the_file(
    admin: AdminClient, brokers: Mapping[str, str]
) -> None:
    before = document(entry("Topic:a", "Pub"), entry("Topic:b", "Sub"))
    # The signatures of this client are those of root: its password changes last.
    users = {name: user for name, user in before.users.items() if name != "root"}
    await access.load_all(admin, brokers, AccessTables(users=users, acls=before.acls))
    after = document(entry("Topic:a", "Get"))
    await access.load_all(admin, brokers, AccessTables(users=users, acls=after.acls))
    found = access.known_tables(await access.document(admin, brokers["broker-b"]))
    assert found.acls == after.acls
    assert found.users.keys() == {"bob", "inner", "root"}


async def test_decisions_need_no_passwords() -> None:
    found = AccessDocument(users=[UserInfo(username="bob", user_type="Super")])
    assert access.known_tables(found).users["bob"].is_super
    with pytest.raises(RoquetError, match="cannot be read"):
        access.known_tables(AccessDocument(users=[UserInfo()]))


def test_a_deletion_names_a_resource_or_everything() -> None:
    call = access.delete_policy_call("bob", "Topic:a", PolicyType.DEFAULT)
    assert (call.subject, call.resource, call.policy_type) == ("User:bob", "Topic:a", "Default")
    assert access.delete_policy_call("bob", None, PolicyType.CUSTOM).resource is None
    with pytest.raises(UsageError, match="'Bogus:x' is no resource"):
        access.delete_policy_call("bob", "Bogus:x", PolicyType.CUSTOM)


def test_known_acls_are_policies_and_resources() -> None:
    info = AclInfo(subject="User:bob", policies=[PolicyInfo(entries=[entry("Topic:a", "Pub")])])
    assert access.known_acls([info]) == {"bob": {("Custom", "Topic:a")}}
