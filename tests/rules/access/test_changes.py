import pytest

from roquet.model.access import AccessTables, PolicyType, User, UserStatus, UserType
from roquet.rules.access import changes as rules

ROOT = User(name="root", password="secret", user_type=UserType.SUPER)
DAVE = User(name="dave", password="secret")
TABLES = AccessTables(users={"root": ROOT, "dave": DAVE})
PUB = rules.policy_entry("Topic:a", ["Pub"], None, "Allow")
SUB = rules.policy_entry("Topic:b", ["Sub"], None, "Allow")


def refused(
    remark: str, *, is_system_error: bool = False
) -> pytest.RaisesExc[rules.AccessChangeRefused]:
    return pytest.RaisesExc(
        rules.AccessChangeRefused,
        check=lambda error: (str(error), error.is_system_error) == (remark, is_system_error),
    )


def test_a_new_user_is_normal_and_enabled() -> None:
    tables = rules.create_user(TABLES, DAVE, "erin", rules.UserChange(password="p"))
    erin = tables.users["erin"]
    assert (erin.password, erin.user_type, erin.status) == (
        "p", UserType.NORMAL, UserStatus.ENABLE,
    )  # fmt: skip
    assert "erin" not in TABLES.users


@pytest.mark.parametrize(
    ("name", "change", "remark"),
    [
        ("  ", rules.UserChange(password="p"), "username can not be blank"),
        ("erin", rules.UserChange(password=""), "password can not be blank"),
        ("erin", rules.UserChange(), "password can not be blank"),
        ("dave", rules.UserChange(password="p"), "The user is existed"),
        (
            "erin",
            rules.UserChange(password="p", user_type="Emperor"),
            "The user type is illegal: it is one of Super, Normal",
        ),
    ],
)
def test_a_user_that_cannot_be_is_refused(name: str, change: rules.UserChange, remark: str) -> None:
    with refused(remark):
        rules.create_user(TABLES, ROOT, name, change)


def test_only_super_users_make_and_touch_super_users() -> None:
    wanted = rules.UserChange(password="p", user_type="super")
    assert rules.create_user(TABLES, ROOT, "erin", wanted).users["erin"].is_super
    with refused("The super user can only be create by super user", is_system_error=True):
        rules.create_user(TABLES, DAVE, "erin", wanted)
    with refused("The super user can only be update by super user", is_system_error=True):
        rules.update_user(TABLES, DAVE, "dave", rules.UserChange(user_type="Super"))
    with refused("The super user can only be update by super user"):
        rules.update_user(TABLES, DAVE, "root", rules.UserChange(password="hacked"))
    with refused("The super user can only be update by super user"):
        rules.delete_user(TABLES, DAVE, "root")
    with refused("The super user can only be update by super user"):
        rules.delete_user(TABLES, None, "root")


def test_what_an_update_leaves_out_stays() -> None:
    tables = rules.update_user(TABLES, ROOT, "dave", rules.UserChange(status="Disable"))
    assert tables.users["dave"] == User(name="dave", password="secret", status=UserStatus.DISABLE)
    tables = rules.update_user(
        tables, ROOT, "dave", rules.UserChange(password="new", user_type="Super")
    )
    assert tables.users["dave"].password == "new"
    assert tables.users["dave"].is_super
    with refused("The user is not exist"):
        rules.update_user(TABLES, ROOT, "nobody", rules.UserChange(password="x"))


def test_a_deleted_user_takes_its_acl_along() -> None:
    tables = rules.change_acl(TABLES, "dave", [(PolicyType.CUSTOM, [PUB])])
    tables = rules.delete_user(tables, ROOT, "dave")
    assert (list(tables.users), dict(tables.acls)) == (["root"], {})
    assert rules.delete_user(tables, ROOT, "dave") == tables


def test_an_entry_takes_the_place_of_one_with_the_same_resource() -> None:
    tables = rules.change_acl(TABLES, "dave", [(PolicyType.CUSTOM, [PUB, SUB])])
    denied = rules.policy_entry("topic:a", ["pub"], ["10.0.0.0/8"], "deny")
    tables = rules.change_acl(tables, "dave", [(PolicyType.CUSTOM, [denied])])
    assert tables.acls["dave"].custom == (denied, SUB)


def test_two_entries_of_one_resource_last_until_the_next_change() -> None:
    denied = rules.policy_entry("Topic:a", ["Pub"], None, "Deny")
    tables = rules.change_acl(TABLES, "dave", [(PolicyType.CUSTOM, [PUB, denied])])
    assert tables.acls["dave"].custom == (PUB, denied)
    tables = rules.change_acl(tables, "dave", [(PolicyType.CUSTOM, [denied])])
    assert tables.acls["dave"].custom == (denied,)


def test_the_entries_of_one_user_are_bounded() -> None:
    many = [rules.policy_entry(f"Topic:t{n}", ["Pub"], None, "Allow") for n in range(1_001)]
    with refused("The policy entries are too many: 1000 are allowed for one user"):
        rules.change_acl(TABLES, "dave", [(PolicyType.CUSTOM, many)])
    tables = rules.change_acl(TABLES, "dave", [(PolicyType.CUSTOM, many[1:])])
    with refused("The policy entries are too many: 1000 are allowed for one user"):
        rules.change_acl(tables, "dave", [(PolicyType.DEFAULT, many[:1])])


def test_a_deletion_removes_one_entry_or_all() -> None:
    changes = [(PolicyType.CUSTOM, [PUB, SUB]), (PolicyType.DEFAULT, [PUB])]
    tables = rules.change_acl(TABLES, "dave", changes)
    assert rules.delete_acl(tables, "dave", "Topic:a", None).acls["dave"].custom == (SUB,)
    assert rules.delete_acl(tables, "dave", "Topic:a", "default").acls["dave"].default == ()
    assert rules.delete_acl(tables, "dave", "Topic:other", None) == tables
    assert dict(rules.delete_acl(tables, "dave", None, None).acls) == {}
    with refused("The acl is not exist."):
        rules.delete_acl(TABLES, "dave", None, None)
    with refused("The subject is not exist."):
        rules.delete_acl(TABLES, "nobody", None, None)


def test_the_last_entry_takes_the_acl_along() -> None:
    tables = rules.change_acl(TABLES, "dave", [(PolicyType.CUSTOM, [PUB])])
    assert rules.known_acl(rules.delete_acl(tables, "dave", "Topic:a", None), "dave") is None


def test_an_unreadable_resource_or_policy_deletes_nothing() -> None:
    tables = rules.change_acl(TABLES, "dave", [(PolicyType.CUSTOM, [PUB])])
    with refused("The resource is null."):
        rules.delete_acl(tables, "dave", "Bogus:x", None)
    with refused("The policy type is illegal: it is one of Custom, Default"):
        rules.delete_acl(tables, "dave", "Topic:a", "Bogus")


def test_an_acl_needs_its_user() -> None:
    with refused("The subject of User:nobody is not exist."):
        rules.change_acl(TABLES, "nobody", [(PolicyType.CUSTOM, [PUB])])
    with refused("The subject is not exist."):
        rules.known_acl(TABLES, "nobody")


@pytest.mark.parametrize(
    ("resource", "actions", "sources", "decision", "remark"),
    [
        ("Bogus:x", ["Pub"], None, "Allow", "The resource is null."),
        (None, ["Pub"], None, "Allow", "The resource is null."),
        ("Topic:x", ["Nix"], None, "Allow", "The actions is empty."),
        ("Topic:x", None, None, "Allow", "The actions is empty."),
        ("Topic:x", ["Pub", "any"], None, "Allow", "The actions can not be Any."),
        ("Topic:x", ["Pub"], ["10.0.*.1"], "Allow", "The source ip is invalid."),
        ("Topic:x", ["Pub"], None, "Perhaps", "The decision is null or illegal."),
        ("Topic:x", ["Pub"], None, None, "The decision is null or illegal."),
    ],
)
def test_an_entry_that_says_nothing_is_refused(
    resource: str | None,
    actions: list[str] | None,
    sources: list[str] | None,
    decision: str | None,
    remark: str,
) -> None:
    with refused(remark):
        rules.policy_entry(resource, actions, sources, decision)


def test_unknown_actions_beside_known_ones_are_left_out() -> None:
    assert rules.policy_entry("Topic:x", ["Nix", "pub", "Pub"], [], "allow").actions == ("Pub",)


def test_a_subject_is_a_user() -> None:
    assert rules.subject_name("User:alice") == rules.subject_name("user:alice") == "alice"
    for other in (None, "", "alice", "User:"):
        with refused("The subject is null."):
            rules.subject_name(other)
    with refused("An system error occurred, please try again later.", is_system_error=True):
        rules.subject_name("Role:alice")


def test_a_policy_is_custom_unless_it_says_otherwise() -> None:
    assert rules.policy_type(None) is PolicyType.CUSTOM
    assert rules.policy_type("default") is PolicyType.DEFAULT


def test_a_printed_change_has_no_password() -> None:
    assert "hush" not in repr(rules.UserChange(password="hush-hush"))
