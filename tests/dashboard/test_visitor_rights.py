"""Forms that a visitor may not use are left out, where users and policies are known."""

import pytest

from roquet.dashboard.visitor_rights import may_change
from roquet.model.access import (
    AccessDecision,
    AccessTables,
    Acl,
    Action,
    PolicyEntry,
    User,
    UserType,
)
from roquet.rules.access.patterns import parse_pattern


def entry(resource: str, *actions: Action, deny: bool = False, source: str = "") -> PolicyEntry:
    pattern = parse_pattern(resource)
    assert pattern is not None
    decision = AccessDecision.DENY if deny else AccessDecision.ALLOW
    sources = (source,) if source else ()
    return PolicyEntry(resource=pattern, actions=actions, decision=decision, sources=sources)


def tables(*entries: PolicyEntry) -> AccessTables:
    users = {
        "bob": User(name="bob", password="b0b"),
        "root": User(name="root", password="r", user_type=UserType.SUPER),
    }
    return AccessTables(users=users, acls={"bob": Acl(custom=entries)})


KNOWN = tables(
    entry("Topic:orders", Action.PUB, Action.CREATE),
    entry("Group:billing*", Action.ALL, source="10.0.0.0/8"),
    entry("Group:billing_eu", Action.DELETE, deny=True),
    entry("Topic:orders", Action.CREATE, deny=True, source="10.9.0.0/16"),
)


@pytest.mark.parametrize(
    ("action", "kind", "name", "is_allowed"),
    [
        ("pub", "topic", "orders", True),
        ("create", "topic", "orders", True),
        ("pub", "topic", "salaries", False),
        ("delete", "topic", "orders", False),
        ("delete", "group", "billing", True),
        ("delete", "group", "billing_eu", False),
        ("pub", "topic", None, True),
        ("delete", "topic", None, False),
        ("update", "cluster", None, False),
    ],
)
def test_a_normal_user_may_do_what_an_entry_allows_from_somewhere(
    action: str, kind: str, name: str | None, is_allowed: bool
) -> None:
    assert may_change(KNOWN, "bob", action, kind, name) is is_allowed


def test_a_user_without_policies_may_change_nothing() -> None:
    alone = AccessTables(users=tables().users)
    assert not may_change(alone, "bob", "pub", "topic", "orders")
    assert not may_change(alone, "bob", "pub", "topic")


@pytest.mark.parametrize(
    ("known", "user"), [(None, "bob"), (KNOWN, None), (KNOWN, "new"), (KNOWN, "root")]
)
def test_what_is_not_known_is_left_to_the_brokers(
    known: AccessTables | None, user: str | None
) -> None:
    assert may_change(known, user, "delete", "topic", "salaries")
