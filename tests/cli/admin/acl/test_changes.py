"""roquet acl user, policy."""

import json
from pathlib import Path

import pytest
from tests.cli.admin.acl.conftest import Roquet

from roquet.admin import access
from roquet.cli.admin.acl.changes import AccessChange
from roquet.model.errors import CallRefused, UsageError


def test_only_the_named_brokers_are_asked(roquet: Roquet) -> None:
    roquet("acl", "user", "create", "half", "--generate", "--broker", "broker-b")
    assert roquet("acl", "user", "list", "half").output == "no user\n"
    assert "half" in roquet("acl", "user", "list", "half", "--broker", "broker-b").output
    with pytest.raises(UsageError, match="did you mean 'broker-b'"):
        roquet("acl", "user", "list", "--broker", "broker-bb")


def test_a_printed_change_has_no_password() -> None:
    call = access.user_call("bob", create=True, password="hush-hush", user_type=None, status=None)
    assert "hush" not in repr(AccessChange(call=call, done="bob: created", secret="hush-hush"))


def test_a_user_is_created_listed_changed_and_deleted(roquet: Roquet, tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text("hush-hush\nignored\n")
    made = roquet("acl", "user", "create", "bob", "--password-file", str(secret))
    assert made.output == "bob: created, on broker-a, broker-b\n"
    listed = roquet("acl", "user", "list")
    assert [line.split() for line in listed.output.splitlines() if "bob" in line] == [
        ["bob", "Normal", "enable"]
    ]
    assert "hush" not in listed.output
    changed = roquet("acl", "user", "update", "bob", "--disable", "--super")
    assert changed.output == "bob: changed, on broker-a, broker-b\n"
    fields = json.loads(roquet("acl", "user", "list", "bob", "--json").output)
    assert fields == {"name": "bob", "type": "Super", "status": "disable"}
    gone = roquet("acl", "user", "delete", "bob", "--yes")
    assert gone.output == "bob: deleted, on broker-a, broker-b\n"
    assert roquet("acl", "user", "list", "bob").output == "no user\n"


def test_a_deletion_asks_first(roquet: Roquet) -> None:
    roquet("acl", "user", "create", "kept", "--generate")
    refused = roquet("acl", "user", "delete", "kept", typed="n\n")
    assert refused.exit_code == 1
    assert "kept" in roquet("acl", "user", "list").output


def test_a_generated_password_is_printed_once(roquet: Roquet) -> None:
    output = roquet("acl", "user", "create", "gen", "--generate", "--broker", "broker-a").output
    first, second = output.splitlines()
    assert first == "gen: created, on broker-a"
    assert len(second.removeprefix("password: ")) == 32
    updated = roquet("acl", "user", "update", "gen", "--generate", "--json", "--broker", "broker-a")
    fields = json.loads(updated.output)
    assert (fields["brokers"], len(fields["password"])) == (["broker-a"], 32)


def test_a_password_comes_from_standard_input(roquet: Roquet) -> None:
    made = roquet("acl", "user", "create", "piped", "--password-file", "-", typed="s3cret\n")
    assert made.exit_code == 0
    with pytest.raises(UsageError, match="the first line is empty"):
        roquet("acl", "user", "create", "other", "--password-file", "-", typed="\n")


def test_a_user_needs_a_password_and_an_update_a_change(roquet: Roquet, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="a password is wanted: --password-file FILE"):
        roquet("acl", "user", "create", "bob")
    with pytest.raises(UsageError, match="say what is to be changed"):
        roquet("acl", "user", "update", "bob")
    with pytest.raises(UsageError, match="exclude each other"):
        roquet("acl", "user", "create", "x", "--generate", "--password-file", str(tmp_path))
    with pytest.raises(CallRefused, match="The user is not exist"):
        roquet("acl", "user", "update", "nobody", "--enable")


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
