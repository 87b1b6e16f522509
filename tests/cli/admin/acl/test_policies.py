"""roquet acl policy."""

import json

import pytest
from tests.cli.admin.acl.conftest import Roquet

from roquet.model.errors import CallRefused, UsageError


def test_a_policy_is_created_listed_replaced_and_deleted(roquet: Roquet) -> None:
    roquet("acl", "user", "create", "carol", "--generate")
    options = ("-r", "Topic:orders", "-r", "Topic:pre*", "-a", "pub", "-a", "Sub")
    made = roquet("acl", "policy", "create", "carol", *options, "--source", "10.0.0.0/8")
    assert made.output == (
        "carol: allowed Pub, Sub on Topic:orders, Topic:pre*, on broker-a, broker-b\n"
    )
    denied = roquet("acl", "policy", "update", "carol", "-r", "Topic:orders", "-a", "All", "--deny")
    assert denied.output == "carol: denied All on Topic:orders, on broker-a, broker-b\n"
    roquet("acl", "policy", "create", "carol", "-r", "Group:*", "-a", "Sub", "--default")
    rows = [line.split() for line in roquet("acl", "policy", "list", "carol").output.splitlines()]
    assert ["User:carol", "Custom", "Topic:orders", "All", "anywhere", "Deny"] in rows
    assert ["User:carol", "Custom", "Topic:pre*", "Pub,", "Sub", "10.0.0.0/8", "Allow"] in rows
    assert ["User:carol", "Default", "Group:*", "Sub", "anywhere", "Allow"] in rows
    gone = roquet("acl", "policy", "delete", "carol", "-r", "Topic:pre*", "-y")
    assert gone.output == "carol: Topic:pre* deleted, on broker-a, broker-b\n"
    found = json.loads(roquet("acl", "policy", "list", "carol", "--json").output)
    assert [policy["policyType"] for policy in found["policies"]] == ["Custom", "Default"]
    roquet("acl", "policy", "delete", "carol", "--yes")
    assert roquet("acl", "policy", "list", "carol").output == "no policy\n"


def test_what_is_no_resource_deletes_nothing(roquet: Roquet) -> None:
    with pytest.raises(UsageError, match="'Bogus:x' is no resource"):
        roquet("acl", "policy", "delete", "carol", "-r", "Bogus:x", "-y")
    with pytest.raises(CallRefused, match="The source ip is invalid"):
        roquet("acl", "policy", "create", "root", "-r", "*", "-a", "Pub", "--source", "10.*")
