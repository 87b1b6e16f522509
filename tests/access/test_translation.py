"""Users and ACLs as files and on the wire."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.access.translation import (
    AccessDocument,
    acl_info,
    decode_document,
    encode_document,
    policy_changes,
    tables_of,
    user_change,
    user_info,
)
from roquet.model.access import AccessTables, Acl, User, UserStatus, UserType
from roquet.model.errors import FieldError
from roquet.rules.access.changes import AccessChangeRefused, policy_entry
from roquet.wire.calls.access import AclInfo, PolicyInfo, UserInfo
from roquet.wire.fastjson import codec

MIGRATED = Path(__file__).parents[1] / "vectors" / "auth" / "migrated.jsonl"

ENTRIES = st.builds(
    policy_entry,
    st.sampled_from(["*", "Topic:*", "Group:g-*", "Cluster:c", "Topic:a"]),
    st.lists(st.sampled_from(["All", "Pub", "Sub", "Get"]), min_size=1, unique=True),
    st.lists(st.sampled_from(["10.0.0.0/8", "fe80::/10", "127.0.0.1"]), unique=True),
    st.sampled_from(["Allow", "Deny"]),
)
ACLS = st.builds(
    lambda custom, default: Acl(custom=tuple(custom), default=tuple(default)),
    st.lists(ENTRIES, min_size=1, max_size=3),
    st.lists(ENTRIES, max_size=2),
)
NAMES = st.text(min_size=1, max_size=8).filter(str.strip)
USERS = st.builds(
    User,
    name=NAMES,
    password=NAMES,
    user_type=st.sampled_from(UserType),
    status=st.sampled_from(UserStatus),
)


@given(st.lists(st.tuples(USERS, st.none() | ACLS), max_size=4, unique_by=lambda one: one[0].name))
def test_a_file_is_read_as_it_was_written(users: list[tuple[User, Acl | None]]) -> None:
    tables = AccessTables(
        users={user.name: user for user, _ in users},
        acls={user.name: acl for user, acl in users if acl is not None},
    )
    assert tables_of(decode_document(encode_document(tables))) == tables


def test_the_answers_of_a_genuine_broker_are_a_file() -> None:
    users, acls = MIGRATED.read_text("utf-8").splitlines()
    document = decode_document(f'{{"users":{users},"acls":{acls}}}'.encode())
    tables = tables_of(document)
    assert tables.users["rootuser"].is_super
    shown = [codec.dumps(acl_info(name, acl)).decode() for name, acl in tables.acls.items()]
    assert f"[{','.join(shown)}]" == acls
    assert codec.dumps([user_info(user) for user in tables.users.values()]).decode() == users


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"nonsense", b'{"users":{}}', b'{"acls":[]}'])
def test_another_file_is_refused_without_its_content(data: bytes) -> None:
    with pytest.raises(FieldError, match=r"^no JSON object with the lists"):
        decode_document(data)


@pytest.mark.parametrize(
    ("document", "fault"),
    [
        ({"users": [{"username": "a"}]}, r"user 1 \(a\): password can not be blank"),
        (
            {"users": [{"username": "a", "password": "p", "userType": "Emperor"}]},
            r"user 1 \(a\): The user type is illegal",
        ),
        (
            {"users": [], "acls": [{"subject": "User:b", "policies": [{"entries": [{}]}]}]},
            r"acl 1 \(User:b\): The resource is null",
        ),
    ],
)
def test_a_broken_entry_is_named(document: object, fault: str) -> None:
    with pytest.raises(FieldError, match=fault):
        tables_of(decode_document(json.dumps(document).encode()))


def test_policies_without_entries_are_refused() -> None:
    with pytest.raises(AccessChangeRefused, match="The policies is empty"):
        policy_changes(AclInfo())
    with pytest.raises(AccessChangeRefused, match="The policy entries is empty"):
        policy_changes(AclInfo(policies=[PolicyInfo()]))


def test_entries_are_shown_by_a_part_of_their_resource() -> None:
    acl = Acl(custom=(policy_entry("Topic:a", ["Pub"], None, "Allow"),))
    assert acl_info("bob", acl, "Topic") == acl_info("bob", acl)
    assert acl_info("bob", acl, "Group").policies == []


def test_passwords_are_shown_only_where_they_are_wanted() -> None:
    user = User(name="bob", password="hush-hush")
    assert user_info(user, with_password=False).password is None
    assert user_change(user_info(user)).password == "hush-hush"
    document = AccessDocument(users=[UserInfo(username="bob", password="hush-hush")])
    assert "hush" not in repr(document)
