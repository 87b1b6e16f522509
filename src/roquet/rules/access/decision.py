"""Decision: whether a user may do something with a resource, and the reason.

    super user            allowed
    custom entries        that match resource, action and source address: the first one decides
    default entries       only if no custom one matches
    none                  refused

Entries are ordered: a concrete type before `*`, a literal name before a prefix before any name, a
longer prefix before a shorter one, and Deny before Allow. Source: Apache RocketMQ 5.5.0.
"""

from collections.abc import Collection
from typing import Final

import msgspec

from roquet.model.access import (
    AccessDecision,
    AccessTables,
    Acl,
    Action,
    Match,
    PolicyEntry,
    PolicyType,
    Resource,
)
from roquet.rules.access.patterns import comes_from, matches

NO_POLICY: Final = "no matched policies."
DENIED: Final = "the decision is deny."
SUPER_USER: Final = "super users may do everything."

_RANKS: Final = {Match.LITERAL: 0, Match.PREFIX: 1, Match.ANY: 2}


class AccessRequest(msgspec.Struct, frozen=True):
    """Need of a request: one resource, and actions of which one allowed is enough."""

    resource: Resource
    actions: tuple[Action, ...]


class AccessVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a request is allowed, and why."""

    is_allowed: bool
    reason: str
    """In the words of Apache's brokers, where it refuses."""
    policy: PolicyType | None = None
    """The policy of the entry that decided; None when no entry did."""
    entry: PolicyEntry | None = None


_SUPER: Final = AccessVerdict(is_allowed=True, reason=SUPER_USER)
_NO_POLICY: Final = AccessVerdict(is_allowed=False, reason=NO_POLICY)


def decide(tables: AccessTables, username: str, request: AccessRequest, ip: str) -> AccessVerdict:
    """Decide on one request of a user from an IP address."""
    user = tables.users.get(username)
    if user is None:
        return AccessVerdict(is_allowed=False, reason=not_found(username))
    if user.is_super:
        return _SUPER
    acl = tables.acls.get(username)
    return _NO_POLICY if acl is None else by_policies(acl, request, ip)


def by_policies(acl: Acl, request: AccessRequest, ip: str) -> AccessVerdict:
    """Decide on one request by the policies of a user."""
    for policy in PolicyType:
        fitting = [entry for entry in acl.entries(policy) if _fits(entry, request, ip)]
        if fitting:
            entry = min(fitting, key=_order)
            is_allowed = entry.decision is AccessDecision.ALLOW
            reason = f"{policy} policy: {entry.resource}" if is_allowed else DENIED
            return AccessVerdict(is_allowed=is_allowed, reason=reason, policy=policy, entry=entry)
    return _NO_POLICY


def not_found(username: str) -> str:
    """The reason of a refusal for a user that does not exist."""
    return f"User:{username} not found."


def refusal_text(username: str, request: AccessRequest, ip: str, verdict: AccessVerdict) -> str:
    """The remark of a refusal, in the words of Apache's brokers."""
    if verdict.reason == not_found(username):
        return verdict.reason
    return (
        f"User:{username} has no permission to access {request.resource} from {ip}, "
        f"{verdict.reason}"
    )


def _fits(entry: PolicyEntry, request: AccessRequest, ip: str) -> bool:
    return (
        matches(entry.resource, request.resource)
        and _covers(entry.actions, request.actions)
        and (not entry.sources or any(comes_from(ip, source) for source in entry.sources))
    )


def _covers(actions: Collection[Action], wanted: Collection[Action]) -> bool:
    return Action.ALL in actions or any(action in actions for action in wanted)


def _order(entry: PolicyEntry) -> tuple[bool, int, int, bool]:
    pattern = entry.resource
    return (
        pattern.kind is None,
        _RANKS[pattern.match],
        -len(pattern.name),
        entry.decision is AccessDecision.ALLOW,
    )
