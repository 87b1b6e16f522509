"""Users and policies from accounts of Apache RocketMQ 4."""

import json
from pathlib import Path

import pytest

from roquet.model import access
from roquet.model.plain_acl import PlainAccount, PlainAcl
from roquet.rules.access import changes
from roquet.rules.access.decision import AccessRequest, decide
from roquet.rules.access.plain_acl import ADDED, migrate, overlaid, without_overlay
from roquet.wire.plain_acl import decode_plain_acl

VECTORS = Path(__file__).parents[2] / "vectors" / "auth"
SHOP = PlainAccount(access_key="shop", secret_key="shopsecret")


def genuine_entries(policy: int) -> list[access.PolicyEntry]:
    """Entries that Apache RocketMQ 5.5.0 made of the same file."""
    (acl,) = json.loads((VECTORS / "migrated.jsonl").read_text().splitlines()[1])
    return [
        changes.policy_entry(entry["resource"], entry["actions"], None, entry["decision"])
        for entry in acl["policies"][policy]["entries"]
    ]


def added(entry: access.PolicyEntry) -> access.PolicyEntry:
    """The entry with what is added to those of Apache RocketMQ 5."""
    more = ["Get"] if access.Action.SUB in entry.actions else []
    texts = [*map(str, entry.actions), *more]
    return changes.policy_entry(str(entry.resource), texts, None, str(entry.decision))


def test_users_and_entries_are_those_of_apaches_migration_but_for_what_is_noted() -> None:
    found = migrate(decode_plain_acl((VECTORS / "plain_acl.yml").read_bytes()))
    users = json.loads((VECTORS / "migrated.jsonl").read_text().splitlines()[0])
    types = {user["username"]: user["userType"] for user in users if user["password"] == "12345678"}
    assert {user.name: str(user.user_type) for user in found.tables.users.values()} == types
    acl = found.tables.acls["RocketMQ"]
    refused = changes.policy_entry("Topic:topicD", ["All"], None, "Deny")
    allowed = changes.policy_entry("Topic:topicD", ["All"], None, "Allow")
    trace = changes.policy_entry("Topic:RMQ_SYS_TRACE_TOPIC", ["Pub"], None, "Allow")
    expected = [refused if one == allowed else added(one) for one in genuine_entries(0)]
    assert list(acl.custom) == [*expected, trace]
    assert list(acl.default) == [added(one) for one in genuine_entries(1)]
    assert "rocketmq2" not in found.tables.acls
    assert found.notes == (
        "globalWhiteRemoteAddresses 10.10.103.*, 192.168.0.* are not kept: programs there need a "
        "user and must sign",
        "rocketmq2: whiteRemoteAddress 192.168.1.* is not kept: requests from there must be signed "
        "with the secret, too",
        "RocketMQ: topicPerms topicD=ANY is no permission: it stays refused, as in version 4",
        ADDED,
    )


@pytest.mark.parametrize(
    ("account", "note"),
    [
        (
            PlainAccount(access_key="boss", secret_key="s", admin="Yes", topic_perms=["a=DENY"]),
            "boss: its permissions are not kept: as an admin it becomes a super user, who may do "
            "everything",
        ),
        (
            PlainAccount(access_key="shop", secret_key="s", topic_perms=["ord*=PUB"]),
            "shop: topicPerms ord*=PUB is not kept: a star would stand for many names now",
        ),
        (
            PlainAccount(access_key="shop", secret_key="s", default_group_perm="sub"),
            "shop: defaultGroupPerm sub is no permission: it stays refused, as in version 4",
        ),
    ],
)
def test_what_has_no_equal_is_noted(account: PlainAccount, note: str) -> None:
    assert note in migrate(PlainAcl(accounts=[account])).notes


@pytest.mark.parametrize("text", ["PUB", "PUB|SUB", "DENY"])
def test_every_account_may_send_traces_as_in_version_4(text: str) -> None:
    perms = [f"RMQ_SYS_TRACE_TOPIC={text}"]
    account = PlainAccount(access_key="shop", secret_key="s", topic_perms=perms)
    tables = migrate(PlainAcl(accounts=[account])).tables
    topic = access.Resource(access.ResourceType.TOPIC, "RMQ_SYS_TRACE_TOPIC")
    sub = AccessRequest(topic, (access.Action.SUB,))
    assert decide(tables, "shop", AccessRequest(topic, (access.Action.PUB,)), "::1").is_allowed
    assert decide(tables, "shop", sub, "::1").is_allowed == ("SUB" in text)


def test_an_account_without_permissions_may_do_nothing_else() -> None:
    tables = migrate(PlainAcl(accounts=[SHOP], global_white_remote_addresses="null")).tables
    assert tables.users["shop"].user_type is access.UserType.NORMAL
    (entry,) = tables.acls["shop"].custom
    assert entry.decision is access.AccessDecision.ALLOW
    assert tables.acls["shop"] == access.Acl(custom=(entry,))


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        (PlainAcl(accounts="shop"), "a list is written with a dash"),
        (PlainAcl(accounts=[SHOP, SHOP]), r"account 2 \(shop\): The user is existed"),
        (
            PlainAcl(accounts=[PlainAccount(access_key="shop")]),
            r"account 1 \(shop\): password can not be blank",
        ),
        (
            PlainAcl(accounts=[PlainAccount(access_key="a", secret_key="s", group_perms=["g"])]),
            r"account 1 \(a\): groupPerms: 'g' is not a name=PERMISSION",
        ),
        (
            PlainAcl(accounts=[PlainAccount(access_key="a", secret_key="s", group_perms="g=SUB")]),
            r"account 1 \(a\): a list is written with a dash",
        ),
    ],
)
def test_a_file_that_cannot_be_understood_is_refused_by_account(
    document: PlainAcl, problem: str
) -> None:
    with pytest.raises(changes.AccessChangeRefused, match=problem):
        migrate(document)


FILE = migrate(PlainAcl(accounts=[SHOP])).tables
ROOT = access.User(name="root", password="r", user_type=access.UserType.SUPER)
SAVED = access.AccessTables(users={"root": ROOT})


def test_accounts_of_a_file_are_users_unless_their_names_are_known() -> None:
    both = overlaid(SAVED, FILE)
    assert both.users == {"shop": FILE.users["shop"], "root": ROOT}
    assert both.acls == FILE.acls
    own = access.User(name="shop", password="own")
    assert overlaid(access.AccessTables(users={"shop": own}), FILE) == access.AccessTables(
        users={"shop": own}
    )


def test_only_an_account_that_was_changed_is_saved() -> None:
    both = overlaid(SAVED, FILE)
    assert without_overlay(both, SAVED, FILE) == SAVED
    other = changes.create_user(both, ROOT, "bob", changes.UserChange(password="b"))
    assert without_overlay(other, SAVED, FILE).users.keys() == {"root", "bob"}
    changed = changes.update_user(both, ROOT, "shop", changes.UserChange(status="disable"))
    saved = without_overlay(changed, SAVED, FILE)
    assert saved.users.keys() == {"root", "shop"}
    assert overlaid(saved, FILE) == saved
    granted = changes.change_acl(
        both,
        "shop",
        [(access.PolicyType.CUSTOM, [changes.policy_entry("Topic:a", ["Pub"], None, "Allow")])],
    )
    assert without_overlay(granted, SAVED, FILE).acls == granted.acls


def test_an_account_of_the_file_is_not_deleted_elsewhere() -> None:
    changed = changes.delete_user(overlaid(SAVED, FILE), ROOT, "shop")
    with pytest.raises(
        changes.AccessChangeRefused, match=r"user shop is an account of plain_acl\.yml"
    ):
        without_overlay(changed, SAVED, FILE)
