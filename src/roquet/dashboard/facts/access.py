"""Access: the users and policies of a cluster, and why a user may do something or not."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

import msgspec

from roquet.admin import access
from roquet.admin.client import AdminClient
from roquet.model.access import (
    AccessDecision,
    AccessTables,
    Action,
    Match,
    PolicyEntry,
    PolicyType,
    Resource,
    UserStatus,
)
from roquet.model.errors import CallError, CallRefused, UsageError
from roquet.rules.access.decision import AccessRequest, decide, not_found
from roquet.rules.access.patterns import is_source, parse_pattern
from roquet.wire.calls.access import PolicyEntryInfo
from roquet.wire.codes import ResponseCode

FORM: Final = "one resource such as Topic:orders, Group:billing or Cluster:DefaultCluster"


class UserRow(msgspec.Struct, frozen=True, kw_only=True):
    """A user in a list; never with a password."""

    name: str
    user_type: str
    status: str
    entries: int
    """Lines of its policies."""


class PolicyRow(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a user's policies."""

    user: str
    policy: str
    resource: str
    actions: Sequence[str]
    sources: Sequence[str]
    """IP addresses and CIDR blocks; empty stands for everywhere."""
    decision: str


class AccessFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Users and policies as one broker has them, and the brokers that differ from it."""

    broker: str
    """The broker that was asked for the lists, first by name."""
    users: Sequence[UserRow]
    policies: Sequence[PolicyRow]
    differing: Sequence[str] = ()
    """Brokers with other users or policies: a change did not reach them."""
    silent: Sequence[str] = ()
    """Brokers that did not answer, or refused, with the reason."""


class AccessAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a user may do something, and the line of a policy that decides."""

    user: str
    action: str
    resource: str
    source: str
    is_allowed: bool
    reason: str
    policy: str | None = None
    entry: str | None = None
    """The deciding entry as text; None when no entry decided."""


async def overview(admin: AdminClient) -> AccessFacts:
    """Users and policies of all brokers. Raises the first error when no broker answers."""
    brokers = await access.every_broker(admin)
    tables: dict[str, AccessTables] = {}
    silent: list[str] = []
    for name, address in brokers.items():
        try:
            tables[name] = await _tables(admin, address)
        except CallError as error:
            silent.append(f"{name}: {error}")
            if len(silent) == len(brokers):
                raise
    first, *others = tables
    return AccessFacts(
        broker=first,
        users=_user_rows(tables[first]),
        policies=_policy_rows(tables[first]),
        # Passwords count where they are shown.
        differing=[name for name in others if tables[name] != tables[first]],
        silent=silent,
    )


def is_switched_off(error: CallRefused) -> bool:
    """Whether a broker refused to list users because it has none: access control is off.

    Apache's brokers without a store of users have the same code for every error, and a text.
    """
    is_unknown = error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    return is_unknown or "MetadataProvider is not configured" in (error.remark or "")


async def may(
    admin: AdminClient, user: str, action: str, resource: str, source: str
) -> AccessAnswer:
    """Decide as the first broker by name would, if access control is on there.

    Raises UsageError for a text that is no action, resource or IP address.
    """
    request = access_request(action, resource)
    if not is_source(source) or "/" in source:
        raise UsageError(f"{source!r} is no IP address")
    address = next(iter((await access.every_broker(admin)).values()))
    return answer(await _tables(admin, address), user, request, source)


def access_request(action: str, resource: str) -> AccessRequest:
    """The request that a form describes. Raises UsageError for other texts."""
    pattern = parse_pattern(resource.strip())
    if pattern is None or pattern.kind is None or pattern.match is not Match.LITERAL:
        raise UsageError(f"{resource!r} is not {FORM}")
    by_name = {known.lower(): known for known in Action}
    if (wanted := by_name.get(action.strip().lower())) is None:
        raise UsageError(f"{action!r} is no action: {', '.join(Action)}")
    return AccessRequest(Resource(pattern.kind, pattern.name), (wanted,))


def answer(tables: AccessTables, user: str, request: AccessRequest, source: str) -> AccessAnswer:
    """The decision on a request, with its reason."""
    verdict = decide(tables, user, request, source)
    known = tables.users.get(user)
    is_allowed, reason = verdict.is_allowed, verdict.reason
    if known is None:
        reason = not_found(user)
    elif known.status is UserStatus.DISABLE:
        is_allowed, reason = False, f"User:{user} is disabled."
    return AccessAnswer(
        user=user,
        action=str(request.actions[0]),
        resource=str(request.resource),
        source=source,
        is_allowed=is_allowed,
        reason=reason,
        policy=str(verdict.policy) if verdict.policy else None,
        entry=None if verdict.entry is None else entry_text(verdict.entry),
    )


def entry_text(entry: PolicyEntry) -> str:
    """A policy entry in one line, as `Allow Pub, Sub on Topic:orders from anywhere`."""
    sources = ", ".join(entry.sources) or "anywhere"
    return f"{entry.decision} {', '.join(entry.actions)} on {entry.resource} from {sources}"


def entry_info(
    resource: str, actions: Sequence[str], sources: Sequence[str], *, deny: bool
) -> PolicyEntryInfo:
    """The entry that a form describes. Raises UsageError for a text that cannot be used."""
    if parse_pattern(resource) is None:
        raise UsageError(f"{resource!r} is no resource: Topic:orders, Topic:orders-*, Group:* or *")
    if not actions:
        raise UsageError("choose at least one action")
    for source in sources:
        if not is_source(source):
            raise UsageError(f"{source!r} is neither an IP address nor a CIDR block")
    known = {str(action) for action in Action}
    if unknown := [action for action in actions if action not in known]:
        raise UsageError(f"{unknown[0]!r} is no action: {', '.join(Action)}")
    return PolicyEntryInfo(
        resource=resource,
        actions=list(actions),
        source_ips=list(sources) or None,
        decision=str(AccessDecision.DENY if deny else AccessDecision.ALLOW),
    )


async def _tables(admin: AdminClient, address: str) -> AccessTables:
    return access.known_tables(await access.document(admin, address))


def _user_rows(tables: AccessTables) -> list[UserRow]:
    entries = Counter(row.user for row in _policy_rows(tables))
    return [
        UserRow(
            name=name, user_type=str(user.user_type), status=str(user.status), entries=entries[name]
        )
        for name, user in sorted(tables.users.items())
    ]


def _policy_rows(tables: AccessTables) -> list[PolicyRow]:
    return [
        PolicyRow(
            user=name,
            policy=str(policy),
            resource=str(entry.resource),
            actions=[str(action) for action in entry.actions],
            sources=entry.sources,
            decision=str(entry.decision),
        )
        for name, acl in sorted(tables.acls.items())
        for policy in PolicyType
        for entry in acl.entries(policy)
    ]
