"""roquet acl export, import and why."""

import json
from pathlib import Path

import pytest
from tests.cli.admin.acl.conftest import Roquet

from roquet.access.translation import AccessDocument
from roquet.cli.admin.acl import command
from roquet.model.access import Action
from roquet.model.errors import RoquetError, UsageError
from roquet.wire.calls.access import UserInfo


@pytest.fixture
def alice(roquet: Roquet) -> str:
    roquet("acl", "user", "delete", "alice", "-y")
    roquet("acl", "user", "create", "alice", "--generate")
    roquet("acl", "policy", "create", "alice", "-r", "Topic:pre*", "-a", "Pub")
    return "alice"


def test_an_export_is_imported_again(roquet: Roquet, alice: str, tmp_path: Path) -> None:
    path = tmp_path / "access.json"
    assert "2 users" in roquet("acl", "export", str(path)).output or path.exists()
    assert path.stat().st_mode & 0o777 == 0o600
    before = path.read_bytes()
    roquet("acl", "policy", "create", alice, "-r", "*", "-a", "All")
    dry = roquet("acl", "import", str(path), "--dry-run").output
    assert f"{alice}: Normal, enable, with policies" in dry.splitlines()
    done = roquet("acl", "import", str(path), "--yes").output
    assert done.splitlines()[-1].endswith("on broker-a, broker-b")
    again = tmp_path / "again.json"
    roquet("acl", "export", str(again), "--broker", "broker-b")
    acls = [json.loads(text)["acls"] for text in (before, again.read_bytes())]
    assert acls[0] == acls[1]


def test_an_export_replaces_no_file(roquet: Roquet, tmp_path: Path) -> None:
    path = tmp_path / "access.json"
    path.write_text("mine")
    with pytest.raises(UsageError, match="exists already"):
        roquet("acl", "export", str(path))
    assert path.read_text() == "mine"


@pytest.mark.parametrize(
    ("question", "answer", "code"),
    [
        (("alice", "pub", "Topic:pre1"), "allowed: Custom policy: Topic:pre*", 0),
        (("alice", "Sub", "Topic:pre1"), "refused: no matched policies.", 1),
        (("root", "Update", "Cluster:c"), "allowed: super users may do everything.", 0),
        (("nobody", "Pub", "Topic:a"), "refused: User:nobody not found.", 1),
    ],
)
def test_why_says_what_decides(
    roquet: Roquet, alice: str, question: tuple[str, str, str], answer: str, code: int
) -> None:
    assert alice == "alice"
    result = roquet("acl", "why", *question)
    assert (result.output, result.exit_code) == (f"{answer}\n", code)
    fields = json.loads(roquet("acl", "why", *question, "--json").output)
    assert fields["allowed"] == (code == 0)


def test_a_disabled_user_may_do_nothing(roquet: Roquet, alice: str) -> None:
    roquet("acl", "user", "update", alice, "--disable")
    result = roquet("acl", "why", alice, "Pub", "Topic:pre1")
    assert (result.output, result.exit_code) == ("refused: User:alice is disabled.\n", 1)


def test_accounts_of_version_4_become_a_file_for_import(roquet: Roquet, tmp_path: Path) -> None:
    old, new = tmp_path / "plain_acl.yml", tmp_path / "users.json"
    old.write_text(
        "globalWhiteRemoteAddresses: [10.0.0.*]\n"
        "accounts: [{accessKey: shop, secretKey: shopsecret, topicPerms: [orders=PUB]}]\n"
    )
    only_said = roquet("acl", "migrate", str(old)).output
    assert only_said.splitlines()[0] == f"{old}: 1 user, 1 ACL"
    assert "- globalWhiteRemoteAddresses 10.0.0.* are not kept" in only_said
    assert "shopsecret" not in only_said
    assert roquet("acl", "migrate", str(old), "--to", str(new)).output.startswith(str(new))
    assert new.stat().st_mode & 0o777 == 0o600
    roquet("acl", "import", str(new), "--yes")
    assert roquet("acl", "why", "shop", "Pub", "Topic:orders").exit_code == 0


def test_an_export_is_private_and_complete(tmp_path: Path) -> None:
    path = tmp_path / "access.json"
    command.write_document(path, AccessDocument(users=[UserInfo(username="bob", password="p")]))
    assert path.stat().st_mode & 0o777 == 0o600
    assert command.read_tables(path).users["bob"].password == "p"
    with pytest.raises(RoquetError, match="to super users alone"):
        command.write_document(
            tmp_path / "b.json", AccessDocument(users=[UserInfo(username="bob")])
        )


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "access.json"
    path.write_text("{}")
    with pytest.raises(UsageError, match="no JSON object with the lists"):
        command.read_tables(path)


def test_why_asks_about_one_resource() -> None:
    assert str(command.request_of(Action.PUB, "topic:a").resource) == "Topic:a"
    for text in ("*", "Topic:*", "Topic:a*", "a"):
        with pytest.raises(UsageError, match="is not one resource"):
            command.request_of(Action.PUB, text)


def test_a_file_of_version_4_is_named_where_it_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "plain_acl.yml"
    for content in ("accounts: [", "accounts: [{accessKey: a}]"):
        path.write_text(content)
        with pytest.raises(UsageError, match=r"plain_acl\.yml: "):
            command.read_accounts(path)
    path.write_text("accounts: [{accessKey: a, secretKey: s}]")
    assert set(command.read_accounts(path).tables.users) == {"a"}
