import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.model import access
from roquet.rules.access.changes import policy_entry
from roquet.rules.access.decision import (
    DENIED,
    NO_POLICY,
    AccessRequest,
    by_policies,
    decide,
    refusal_text,
)

IP = "127.0.0.1"


def entry(
    resource: str, actions: str, decision: str = "Allow", sources: str = ""
) -> access.PolicyEntry:
    return policy_entry(resource, actions.split(), sources.split(), decision)


def asking(resource: str, *actions: access.Action) -> AccessRequest:
    kind, _, name = resource.partition(":")
    return AccessRequest(
        access.Resource(access.ResourceType(kind), name), actions or (access.Action.PUB,)
    )


ERIN = access.Acl(
    custom=(
        entry("Topic:dup", "Pub"),
        entry("Topic:dup", "Pub", "Deny"),
        entry("Topic:a*", "Pub", "Deny"),
        entry("Topic:ab*", "Pub"),
        entry("Topic:abc", "Pub", "Deny"),
        entry("Topic:*", "Pub"),
        entry("*", "All", "Deny"),
    ),
    default=(entry("Group:*", "Sub"),),
)
"""A user of a genuine broker, which answered as follows."""


@pytest.mark.parametrize(
    ("resource", "action", "allowed"),
    [
        ("Topic:dup", access.Action.PUB, False),
        ("Topic:ax", access.Action.PUB, False),
        ("Topic:abx", access.Action.PUB, True),
        ("Topic:abc", access.Action.PUB, False),
        ("Topic:zzz", access.Action.PUB, True),
        ("Group:gg", access.Action.SUB, False),
    ],
)
def test_the_closest_entry_decides(resource: str, action: access.Action, allowed: bool) -> None:
    verdict = by_policies(ERIN, asking(resource, action), IP)
    assert verdict.is_allowed == allowed
    assert (verdict.reason == DENIED) == (not allowed)


def test_the_default_policy_counts_where_no_custom_entry_matches() -> None:
    acl = access.Acl(custom=(entry("Topic:a", "Pub"),), default=(entry("Topic:*", "Sub"),))
    assert (
        by_policies(acl, asking("Topic:a", access.Action.SUB), IP).policy
        is access.PolicyType.DEFAULT
    )
    assert by_policies(acl, asking("Topic:a"), IP).policy is access.PolicyType.CUSTOM
    assert by_policies(acl, asking("Topic:b"), IP).reason == NO_POLICY


def test_an_entry_for_other_actions_says_nothing() -> None:
    acl = access.Acl(custom=(entry("Topic:a", "Sub", "Deny"), entry("Topic:*", "Pub")))
    assert by_policies(acl, asking("Topic:a"), IP).is_allowed


def test_one_of_several_actions_is_enough() -> None:
    acl = access.Acl(custom=(entry("Topic:a", "Get"),))
    assert by_policies(acl, asking("Topic:a", access.Action.SUB, access.Action.GET), IP).is_allowed


def test_an_entry_counts_for_its_source_addresses_alone() -> None:
    acl = access.Acl(custom=(entry("Topic:a", "Pub", sources="10.0.0.0/8 fe80::/10"),))
    assert by_policies(acl, asking("Topic:a"), "10.9.9.9").is_allowed
    assert by_policies(acl, asking("Topic:a"), IP).reason == NO_POLICY


def test_super_users_need_no_policy_and_unknown_ones_have_none() -> None:
    root = access.User(name="root", password="p", user_type=access.UserType.SUPER)
    normal = access.User(name="bob", password="p")
    tables = access.AccessTables(users={"root": root, "bob": normal})
    request = asking("Cluster:c", access.Action.UPDATE)
    assert decide(tables, "root", request, IP).is_allowed
    refused = decide(tables, "bob", request, IP)
    assert refusal_text("bob", request, IP, refused) == (
        "User:bob has no permission to access Cluster:c from 127.0.0.1, no matched policies."
    )
    unknown = decide(tables, "eve", request, IP)
    assert refusal_text("eve", request, IP, unknown) == "User:eve not found."


PATTERNS = st.sampled_from(["*", "Topic:*", "Topic:a*", "Topic:ab*", "Topic:ab", "Group:*"])
ENTRIES = st.builds(
    entry,
    PATTERNS,
    st.sampled_from(["All", "Pub", "Sub", "Pub Sub"]),
    st.sampled_from(["Allow", "Deny"]),
    st.sampled_from(["", "127.0.0.0/8", "10.0.0.0/8"]),
)
ACLS = st.builds(
    lambda custom, default: access.Acl(custom=tuple(custom), default=tuple(default)),
    st.lists(ENTRIES, max_size=5),
    st.lists(ENTRIES, max_size=3),
)
REQUESTS = st.builds(
    asking,
    st.sampled_from(["Topic:a", "Topic:ab", "Topic:abc", "Group:g"]),
    st.sampled_from(access.Action),
)


@given(ACLS, REQUESTS)
def test_nothing_is_allowed_without_an_entry_that_allows_it(
    acl: access.Acl, request: AccessRequest
) -> None:
    verdict = by_policies(acl, request, IP)
    if verdict.is_allowed:
        assert verdict.entry is not None
        assert verdict.entry.decision is access.AccessDecision.ALLOW
        assert verdict.entry in (*acl.custom, *acl.default)


@given(ACLS, REQUESTS)
def test_the_order_of_entries_does_not_matter(acl: access.Acl, request: AccessRequest) -> None:
    turned = access.Acl(custom=acl.custom[::-1], default=acl.default[::-1])
    before, after = by_policies(acl, request, IP), by_policies(turned, request, IP)
    assert (before.is_allowed, before.reason) == (after.is_allowed, after.reason)


@given(ACLS, REQUESTS)
def test_a_denial_of_the_very_resource_is_final(acl: access.Acl, request: AccessRequest) -> None:
    denial = entry(str(request.resource), "All", "Deny")
    denied = access.Acl(custom=(*acl.custom, denial), default=acl.default)
    assert not by_policies(denied, request, IP).is_allowed
