"""Visitor rights: whether brokers would let a visitor's user make a change.

Pages leave out the forms of changes that brokers would refuse. Where users and policies are not
known, no form is left out, and the brokers decide. They check each request in any case.
"""

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from roquet.admin import access
from roquet.admin.client import AdminClient
from roquet.model.access import (
    AccessDecision,
    AccessTables,
    Acl,
    Action,
    PolicyEntry,
    PolicyType,
    Resource,
    ResourceType,
    User,
)
from roquet.model.errors import CallError, RoquetError
from roquet.rules.access.decision import AccessRequest, by_policies

_ACTIONS: Final[Mapping[str, Action]] = {action.lower(): action for action in Action}
_KINDS: Final[Mapping[str, ResourceType]] = {kind.lower(): kind for kind in ResourceType}


async def known_access(admin: AdminClient) -> AccessTables | None:
    """Users and policies of the first broker that tells them; None when none does."""
    try:
        brokers = await access.every_broker(admin)
    except RoquetError:
        return None
    for address in brokers.values():
        try:
            tables = access.known_tables(await access.document(admin, address))
        except CallError:  # it is away, has no access control, or does not tell this user
            continue
        except RoquetError:  # entries that cannot be read: what they mean is not known
            return None
        return _without_passwords(tables)
    return None


def may_change(
    tables: AccessTables | None, user: str | None, action: str, kind: str, name: str | None = None
) -> bool:
    """Whether a user may do something with a resource, or with any one of its kind.

    True where it is not known. From where the visitor's requests come for a broker is not known
    either, so an entry that allows it from somewhere counts, and one that denies it from somewhere
    does not.
    """
    known = None if tables is None or user is None else tables.users.get(user)
    if tables is None or known is None or known.is_super:
        return True
    acl = _of_anywhere(tables.acls.get(known.name, Acl()))
    wanted = _ACTIONS[action.lower()]
    if name is None:
        entries = [entry for policy in PolicyType for entry in acl.entries(policy)]
        return any(_allows(entry, wanted, _KINDS[kind.lower()]) for entry in entries)
    request = AccessRequest(Resource(_KINDS[kind.lower()], name), (wanted,))
    return by_policies(acl, request, "").is_allowed


def may_see(tables: AccessTables | None, user: str | None, kind: str, name: str) -> bool:
    """Whether a user may get facts of a topic or a group, or consume from it."""
    return any(may_change(tables, user, action, kind, name) for action in ("get", "sub"))


def may_see_cluster(tables: AccessTables | None, user: str | None) -> bool:
    """Whether a user may get facts of the whole cluster."""
    return may_change(tables, user, "get", "cluster")


def _allows(entry: PolicyEntry, action: Action, kind: ResourceType) -> bool:
    return (
        entry.decision is AccessDecision.ALLOW
        and entry.resource.kind in (None, kind)
        and (action in entry.actions or Action.ALL in entry.actions)
    )


def _of_anywhere(acl: Acl) -> Acl:
    for policy in PolicyType:
        kept = tuple(
            replace(entry, sources=())
            for entry in acl.entries(policy)
            if entry.decision is AccessDecision.ALLOW or not entry.sources
        )
        acl = acl.with_entries(policy, kept)
    return acl


def _without_passwords(tables: AccessTables) -> AccessTables:
    users: dict[str, User] = {
        name: replace(user, password=access.UNKNOWN_PASSWORD) for name, user in tables.users.items()
    }
    return replace(tables, users=users)
