"""Users, resources and policies."""

from roquet.model.access import (
    AccessDecision,
    Acl,
    Action,
    Match,
    PolicyEntry,
    PolicyType,
    Resource,
    ResourcePattern,
    ResourceType,
    User,
    UserType,
)

ENTRY = PolicyEntry(
    resource=ResourcePattern(ResourceType.TOPIC, Match.PREFIX, "pre"),
    actions=(Action.PUB,),
    decision=AccessDecision.ALLOW,
)


def test_resources_and_patterns_are_written_as_policies_name_them() -> None:
    assert str(Resource(ResourceType.GROUP, "billing")) == "Group:billing"
    assert str(ENTRY.resource) == "Topic:pre*"
    assert str(ResourcePattern(ResourceType.CLUSTER, Match.ANY)) == "Cluster:*"
    assert str(ResourcePattern(None, Match.ANY)) == "*"
    assert str(ResourcePattern(ResourceType.TOPIC, Match.LITERAL, "a")) == "Topic:a"


def test_each_policy_of_an_acl_is_replaced_alone() -> None:
    acl = Acl().with_entries(PolicyType.DEFAULT, (ENTRY,))
    assert acl.entries(PolicyType.DEFAULT) == (ENTRY,)
    assert acl.entries(PolicyType.CUSTOM) == ()


def test_a_printed_user_has_no_password() -> None:
    user = User(name="alice", password="hush-hush", user_type=UserType.SUPER)
    assert user.is_super
    assert "hush" not in f"{user} {user!r} {[user]} {user.__rich_repr__()}"
