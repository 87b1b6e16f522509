"""Translation: users and ACLs from their form on the wire, which is also that of files, and back.

A file is one JSON object: {"acls": [{"policies": […], "subject": "User:alice"}], "users": […]}.
"""

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from roquet.model.access import AccessTables, Acl, PolicyEntry, PolicyType, User, UserType
from roquet.model.errors import FieldError
from roquet.rules.access.changes import (
    SUBJECT_PREFIX,
    AccessChangeRefused,
    PolicyChanges,
    UserChange,
    change_acl,
    create_user,
    policy_entry,
    policy_type,
    subject_name,
)
from roquet.wire.calls.access import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from roquet.wire.fastjson import codec

_READER: Final = User(name="the file", password="", user_type=UserType.SUPER)
"""Whom a file speaks for: it may name super users."""


class AccessDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Content of a file with users and ACLs."""

    users: list[UserInfo] = []
    acls: list[AclInfo] = []

    def __repr__(self) -> str:
        return f"AccessDocument({len(self.users)} users, {len(self.acls)} acls)"


def decode_document(data: bytes) -> AccessDocument:
    """Decode a file. Raises FieldError, which repeats no content: there are passwords in it."""
    try:
        document = codec.loads(data, AccessDocument)
    except FieldError:
        document = None
    if document is None or b'"users"' not in data:
        raise FieldError('no JSON object with the lists "users" and "acls"')
    return document


def encode_document(tables: AccessTables) -> bytes:
    """Encode all users and ACLs as a file, in the order of their names."""
    return codec.dumps(document_of(tables), standard=True, pretty=True)


def document_of(tables: AccessTables) -> AccessDocument:
    """Document of all users and ACLs, in the order of their names."""
    return AccessDocument(
        users=[user_info(tables.users[name]) for name in sorted(tables.users)],
        acls=[acl_info(name, tables.acls[name]) for name in sorted(tables.acls)],
    )


def tables_of(document: AccessDocument) -> AccessTables:
    """Check and make the tables of a file. Raises FieldError, which names the entry."""
    tables = AccessTables()
    for number, user in enumerate(document.users, 1):
        try:
            tables = create_user(tables, _READER, user.username or "", user_change(user))
        except AccessChangeRefused as error:
            raise FieldError(f"user {number} ({user.username}): {error}") from error
    for number, acl in enumerate(document.acls, 1):
        try:
            tables = change_acl(tables, subject_name(acl.subject), policy_changes(acl))
        except AccessChangeRefused as error:
            raise FieldError(f"acl {number} ({acl.subject}): {error}") from error
    return tables


def user_change(info: UserInfo) -> UserChange:
    """The fields of a user that a request or a file gives."""
    return UserChange(password=info.password, user_type=info.user_type, status=info.user_status)


def user_info(user: User, *, with_password: bool = True) -> UserInfo:
    """A user as it is sent."""
    return UserInfo(
        username=user.name,
        password=user.password if with_password else None,
        user_type=str(user.user_type),
        user_status=str(user.status),
    )


def policy_changes(info: AclInfo) -> PolicyChanges:
    """Check the policies of an ACL. Raises AccessChangeRefused."""
    if not info.policies:
        raise AccessChangeRefused("The policies is empty.")
    changes: list[tuple[PolicyType, list[PolicyEntry]]] = []
    for policy in info.policies:
        if not policy.entries:
            raise AccessChangeRefused("The policy entries is empty.")
        entries = [
            policy_entry(entry.resource, entry.actions, entry.source_ips, entry.decision)
            for entry in policy.entries
        ]
        changes.append((policy_type(policy.policy_type), entries))
    return changes


def acl_info(name: str, acl: Acl, resource_part: str = "") -> AclInfo:
    """The ACL of a user as it is sent, with the entries whose resource contains a text."""
    return AclInfo(
        subject=SUBJECT_PREFIX + name,
        policies=[
            PolicyInfo(policy_type=str(kind), entries=entries)
            for kind in PolicyType
            if (entries := list(_entries(acl.entries(kind), resource_part)))
        ],
    )


def _entries(entries: Iterable[PolicyEntry], resource_part: str) -> Iterator[PolicyEntryInfo]:
    for entry in entries:
        if resource_part in (resource := str(entry.resource)):
            yield PolicyEntryInfo(
                resource=resource,
                actions=[str(action) for action in entry.actions],
                source_ips=list(entry.sources) or None,
                decision=str(entry.decision),
            )
