"""Access: users and policies of a cluster, read from and changed on every broker.

Each broker keeps its own, replicas among them, so that a change goes to all of them.
"""

import asyncio
from collections.abc import Iterable, Mapping

import msgspec

from roquet.access.translation import AccessDocument, acl_info, tables_of
from roquet.admin.client import AdminClient, check_done_everywhere, outcomes
from roquet.model.access import AccessTables, PolicyType
from roquet.model.errors import FieldError, NotFound, RoquetError, UsageError
from roquet.model.settings import suggest
from roquet.rules.access.changes import SUBJECT_PREFIX
from roquet.rules.access.patterns import parse_pattern
from roquet.wire.call import Call, Reply
from roquet.wire.calls.access import (
    AclInfo,
    CreateAcl,
    CreateUser,
    DeleteAcl,
    DeleteUser,
    ListAcls,
    ListUsers,
    PolicyEntryInfo,
    PolicyInfo,
    UpdateAcl,
    UpdateUser,
    UserInfo,
)
from roquet.wire.fastjson import codec

UNKNOWN_PASSWORD = "******"
"""Stands for passwords that the broker does not show to this user."""


async def every_broker(admin: AdminClient, wanted: Iterable[str] = ()) -> Mapping[str, str]:
    """Addresses of all brokers, replicas as `broker-a#1`, or of those named.

    Raises NotFound for a name that no broker has.
    """
    found = {
        broker.broker_name if broker_id == 0 else f"{broker.broker_name}#{broker_id}": address
        for broker in (await admin.cluster()).broker_addr_table.values()
        for broker_id, address in sorted(broker.broker_addrs.items())
    }
    names = [*wanted]
    for name in names:
        if name not in found:
            raise NotFound(f"there is no broker {name!r}{suggest(name, found)}")
    return {name: found[name] for name in names or sorted(found)}


async def change(admin: AdminClient, brokers: Mapping[str, str], call: Call[Reply]) -> list[str]:
    """Make one change on all brokers; returns their names.

    Raises RoquetError, which says where it was made, when some refuse; the first error when all do.
    """
    done, failed = await admin.ask_each(brokers, call)
    return check_done_everywhere(sorted(done) if failed else list(done), failed, "done on")


async def users(admin: AdminClient, address: str, part: str = "") -> list[UserInfo]:
    """Users of one broker whose names contain a text."""
    reply = await admin.ask(address, ListUsers(filter=part or None))
    return codec.loads(reply.body, list[UserInfo]) if reply.body else []


async def acls(
    admin: AdminClient, address: str, subject_part: str = "", resource_part: str = ""
) -> list[AclInfo]:
    """ACLs of one broker whose subjects and resources contain texts."""
    call = ListAcls(subject_filter=subject_part or None, resource_filter=resource_part or None)
    reply = await admin.ask(address, call)
    return codec.loads(reply.body, list[AclInfo]) if reply.body else []


async def document(admin: AdminClient, address: str) -> AccessDocument:
    """All users and ACLs of one broker; to a super user it shows the passwords."""
    found, policies = await asyncio.gather(users(admin, address), acls(admin, address))
    return AccessDocument(users=found, acls=policies)


def known_tables(found: AccessDocument) -> AccessTables:
    """The tables of a document that may lack passwords, for decisions alone.

    Raises RoquetError for entries that cannot be read.
    """
    named = [
        user if user.password else msgspec.structs.replace(user, password=UNKNOWN_PASSWORD)
        for user in found.users
    ]
    try:
        return tables_of(AccessDocument(users=named, acls=found.acls))
    except FieldError as error:
        raise RoquetError(f"the broker's answer cannot be read: {error}") from error


def user_call(
    name: str, *, create: bool, password: str | None, user_type: str | None, status: str | None
) -> CreateUser | UpdateUser:
    """The request that makes or changes a user."""
    body = codec.dumps(UserInfo(password=password, user_type=user_type, user_status=status))
    return CreateUser(username=name, body=body) if create else UpdateUser(username=name, body=body)


def policy_call(
    name: str, entries: list[PolicyEntryInfo], policy: PolicyType, *, create: bool
) -> CreateAcl | UpdateAcl:
    """The request that adds entries to the policy of a user."""
    subject = SUBJECT_PREFIX + name
    info = PolicyInfo(policy_type=str(policy), entries=entries)
    body = codec.dumps(AclInfo(subject=subject, policies=[info]))
    return (
        CreateAcl(subject=subject, body=body) if create else UpdateAcl(subject=subject, body=body)
    )


def delete_user_call(name: str) -> DeleteUser:
    """The request that removes a user and its ACL."""
    return DeleteUser(username=name)


def delete_policy_call(name: str, resource: str | None, policy: PolicyType) -> DeleteAcl:
    """The request that removes the entry of a resource, or the whole ACL.

    Raises UsageError for a text that is no resource: Apache's brokers remove the whole ACL then.
    """
    if resource is not None and parse_pattern(resource) is None:
        raise UsageError(
            f"{resource!r} is no resource: Topic:orders, Topic:orders-*, Topic:*, Group:…, "
            "Cluster:… or *"
        )
    return DeleteAcl(subject=SUBJECT_PREFIX + name, resource=resource, policy_type=str(policy))


async def load(admin: AdminClient, address: str, wanted: AccessTables) -> None:
    """Give one broker the users and ACLs of a file; others that it has stay.

    An ACL becomes that of the file: new entries first, then others are removed, so that no right
    is missing in between.
    """
    present = {user.username for user in await users(admin, address)}
    for name, user in sorted(wanted.users.items()):
        call = user_call(
            name,
            create=name not in present,
            password=user.password,
            user_type=user.user_type,
            status=user.status,
        )
        await admin.ask(address, call)
    before = known_acls(await acls(admin, address))
    for name, acl in sorted(wanted.acls.items()):
        info = acl_info(name, acl)
        await admin.ask(address, CreateAcl(subject=info.subject, body=codec.dumps(info)))
        kept = {(policy, str(e.resource)) for policy in PolicyType for e in acl.entries(policy)}
        for policy, resource in sorted(before.get(name, set()) - kept):
            await admin.ask(address, delete_policy_call(name, resource, PolicyType(policy)))


def known_acls(infos: Iterable[AclInfo]) -> dict[str, set[tuple[str, str]]]:
    """Policies and resources of the entries of each user."""
    return {
        (info.subject or "").removeprefix(SUBJECT_PREFIX): {
            (policy.policy_type or PolicyType.CUSTOM, entry.resource or "")
            for policy in info.policies or []
            for entry in policy.entries or []
        }
        for info in infos
    }


async def load_all(
    admin: AdminClient, brokers: Mapping[str, str], wanted: AccessTables
) -> list[str]:
    """Give several brokers the users and ACLs of a file; returns their names.

    Raises RoquetError as `change` does.
    """
    done, failed = await outcomes(brokers, lambda name: load(admin, brokers[name], wanted))
    return check_done_everywhere(sorted(done) if failed else list(done), failed, "done on")
