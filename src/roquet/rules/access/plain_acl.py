"""Migration: users and policies of ACL 2.0 from accounts of Apache RocketMQ 4.x (ACL 1.0).

    admin                    super user
    topicPerms, groupPerms   custom entries, one for each name
    default…Perm             default entries, for all other names

Source: Apache RocketMQ 4.9.8 for the meaning of a file, 5.5.0 for the entries made from it. An
unknown word is refused as in 4.9.8, where 5.5.0 makes it a permission for everything. What has no
equal is named in a note.
"""

from collections.abc import Iterator, Sequence
from typing import Final, TypeVar

import msgspec

from roquet.model import names
from roquet.model.access import AccessTables, PolicyEntry, PolicyType, User, UserType
from roquet.model.plain_acl import PlainAccount, PlainAcl
from roquet.rules.access.changes import (
    AccessChangeRefused,
    UserChange,
    change_acl,
    create_user,
    policy_entry,
)

ADDED: Final = (
    f"Get is added to SUB, and Pub on {names.TRACE_TOPIC} to accounts that are no admins. "
    "Version 4 also showed lists, settings and statistics to every account: that needs Get on the "
    "cluster"
)

_PERMISSIONS: Final = {
    "PUB": ("Pub",),
    "SUB": ("Sub", "Get"),
    "PUB|SUB": ("Pub", "Sub", "Get"),
    "SUB|PUB": ("Pub", "Sub", "Get"),
}
"""Actions of each permission. A first pull asks where queues begin, which version 4 let everybody
do and which needs Get now."""

_DENY: Final = "DENY"
_TRUE: Final = frozenset({"true", "yes", "on"})
_EMPTY: Final = frozenset({"", "~", "null"})
"""Texts of a YAML entry without a value."""

_MIGRATOR: Final = User(name="the file", password="", user_type=UserType.SUPER)
"""Whom a file speaks for: it may name super users."""


class MigratedAccess(msgspec.Struct, frozen=True, kw_only=True):
    """Users and policies that were made from a file, and what differs from it."""

    tables: AccessTables
    notes: tuple[str, ...]
    """One sentence for each thing that has no equal or was added; without secrets."""


def migrate(document: PlainAcl) -> MigratedAccess:
    """Make users and policies of a file. Raises AccessChangeRefused, which names the account."""
    tables, notes = AccessTables(), list(_address_notes(document))
    has_normal_users = False
    for number, account in enumerate(_listed(document.accounts), 1):
        is_super = account.admin.strip().lower() in _TRUE
        has_normal_users |= not is_super
        name = account.access_key
        try:
            change = UserChange(
                password=account.secret_key,
                user_type=UserType.SUPER if is_super else UserType.NORMAL,
            )
            tables = create_user(tables, _MIGRATOR, name, change)
            if is_super:
                notes += _admin_notes(account)
                continue
            custom = _custom_entries(account, notes)
            default = _default_entries(account, notes)
            tables = change_acl(
                tables, name, [(PolicyType.CUSTOM, custom), (PolicyType.DEFAULT, default)]
            )
        except AccessChangeRefused as error:
            raise AccessChangeRefused(f"account {number} ({name}): {error}") from error
    if has_normal_users:
        notes.append(ADDED)
    return MigratedAccess(tables=tables, notes=tuple(notes))


def _address_notes(document: PlainAcl) -> Iterator[str]:
    """Notes on addresses that needed no signature."""
    if addresses := _listed(document.global_white_remote_addresses):
        yield (
            f"globalWhiteRemoteAddresses {', '.join(addresses)} are not kept: programs there need "
            "a user and must sign"
        )
    for account in _listed(document.accounts):
        if (address := account.white_remote_address.strip()) not in _EMPTY:
            yield (
                f"{account.access_key}: whiteRemoteAddress {address} is not kept: requests from "
                "there must be signed with the secret, too"
            )


def _admin_notes(account: PlainAccount) -> Iterator[str]:
    """Note on an admin whom version 4 bound to permissions."""
    if any(
        _listed(perms) if isinstance(perms, list) else perms.strip() not in _EMPTY
        for perms in (
            account.topic_perms, account.group_perms,
            account.default_topic_perm, account.default_group_perm,
        )
    ):  # fmt: skip
        yield (
            f"{account.access_key}: its permissions are not kept: as an admin it becomes a super "
            "user, who may do everything"
        )


def _custom_entries(account: PlainAccount, notes: list[str]) -> list[PolicyEntry]:
    """Entries of the permissions that name a topic or a group; of a name given twice the last."""
    entries: dict[str, PolicyEntry] = {}
    for kind, field, texts in (
        ("Topic", "topicPerms", account.topic_perms),
        ("Group", "groupPerms", account.group_perms),
    ):
        for text in _listed(texts):
            name, equals, perm = (part.strip() for part in text.partition("="))
            if not (name and equals and perm):
                raise AccessChangeRefused(f"{field}: {text!r} is not a name=PERMISSION")
            if "*" in name:
                notes.append(
                    f"{account.access_key}: {field} {text} is not kept: a star would stand for "
                    "many names now"
                )
                continue
            resource = f"{kind}:{name}"
            entries[resource] = _entry(resource, perm, f"{field} {text}", account, notes)
    trace = f"Topic:{names.TRACE_TOPIC}"  # to which every account of version 4 may send
    entries[trace] = policy_entry(trace, ["Pub", *_more(entries.get(trace))], None, "Allow")
    return list(entries.values())


def _default_entries(account: PlainAccount, notes: list[str]) -> list[PolicyEntry]:
    """Entries of the permissions on all other topics and groups; none where the file has none."""
    return [
        _entry(resource, perm.strip(), f"{field} {perm}", account, notes)
        for resource, field, perm in (
            ("Topic:*", "defaultTopicPerm", account.default_topic_perm),
            ("Group:*", "defaultGroupPerm", account.default_group_perm),
        )
        if perm.strip() not in _EMPTY
    ]


def _entry(
    resource: str, perm: str, source: str, account: PlainAccount, notes: list[str]
) -> PolicyEntry:
    actions = _PERMISSIONS.get(perm)
    if actions is not None:
        return policy_entry(resource, actions, None, "Allow")
    if perm != _DENY:
        notes.append(
            f"{account.access_key}: {source} is no permission: it stays refused, as in version 4"
        )
    return policy_entry(resource, ["All"], None, "Deny")


def _more(entry: PolicyEntry | None) -> Sequence[str]:
    return [] if entry is None or entry.decision == "Deny" else [str(a) for a in entry.actions]


T = TypeVar("T")


def _listed(value: list[T] | str) -> list[T]:
    """A list of the file. Raises AccessChangeRefused for a text in its place."""
    if isinstance(value, list):
        return value
    if value.strip() not in _EMPTY:
        raise AccessChangeRefused("a list is written with a dash in front of each entry")
    return []


def overlaid(tables: AccessTables, plain: AccessTables) -> AccessTables:
    """Tables with the users of a file of version 4 whose names they do not have."""
    left = plain.users.keys() - tables.users.keys()
    return AccessTables(
        users={name: user for name, user in plain.users.items() if name in left} | {**tables.users},
        acls={name: acl for name, acl in plain.acls.items() if name in left} | {**tables.acls},
    )


def without_overlay(
    changed: AccessTables, saved: AccessTables, plain: AccessTables
) -> AccessTables:
    """Tables to be saved after a change: users of the file only where the change was theirs.

    Raises AccessChangeRefused for a change that would delete one of the file's users.
    """
    taken = {
        name
        for name, user in changed.users.items()
        if name in saved.users
        or user != plain.users.get(name)
        or changed.acls.get(name) != plain.acls.get(name)
    }
    if gone := plain.users.keys() - changed.users.keys():
        raise AccessChangeRefused(
            f"The user {min(gone)} is an account of plain_acl.yml: remove it there, or disable it"
        )
    return AccessTables(
        users={name: user for name, user in changed.users.items() if name in taken},
        acls={name: acl for name, acl in changed.acls.items() if name in taken},
    )
