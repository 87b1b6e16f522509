"""Changes of users and policies: each makes other tables, or is refused with the reason.

Source of the rules and of the reasons' words: Apache RocketMQ 5.5.0. Where its broker guesses at an
unreadable value (a user type, a resource to delete), the change is refused here.
"""

from collections.abc import Mapping, Sequence
from typing import Final, TypeVar, overload

import msgspec
from msgspec.structs import replace

from roquet.model.access import (
    AccessDecision,
    AccessTables,
    Acl,
    Action,
    PolicyEntry,
    PolicyType,
    User,
    UserStatus,
    UserType,
)
from roquet.model.errors import RoquetError
from roquet.rules.access.patterns import is_source, parse_pattern

SUBJECT_PREFIX: Final = "User:"
"""In front of the user's name in the subject of an ACL."""

ENTRIES_MAX: Final = 1_000
"""Entries of one user: each decision that is not remembered looks at all of them, some 0.5 ms."""

NOT_BY_NORMAL_USERS: Final = "The super user can only be {} by super user"

ACL_NOT_BY_NORMAL_USERS: Final = "The acl can only be changed by super user"
"""Ours: a user who may change the cluster could give himself every right."""

K = TypeVar("K", UserType, UserStatus, PolicyType, AccessDecision, Action)


class AccessChangeRefused(RoquetError):
    """A change of users or policies that was refused; nothing has changed."""

    def __init__(self, remark: str, *, is_system_error: bool = False) -> None:
        super().__init__(remark)
        self.is_system_error = is_system_error
        """Whether Apache's brokers answer with SYSTEM_ERROR, and not with NO_PERMISSION."""


class UserChange(msgspec.Struct, frozen=True, kw_only=True):
    """Fields of a user as a request gives them; None, and a blank password, leave what there is."""

    password: str | None = None
    user_type: str | None = None
    status: str | None = None

    def __repr__(self) -> str:
        return f"UserChange(user_type={self.user_type!r}, status={self.status!r})"


PolicyChanges = Sequence[tuple[PolicyType, Sequence[PolicyEntry]]]
"""Entries to be added to policies, or put in the place of entries with the same resource."""


def create_user(
    tables: AccessTables, caller: User | None, name: str, change: UserChange
) -> AccessTables:
    """Add a user. Only a super user (`caller`) may add another one. Raises AccessChangeRefused."""
    user_type = _choice(UserType, change.user_type, UserType.NORMAL, "user type")
    if user_type is UserType.SUPER and not _is_super(caller):
        raise AccessChangeRefused(NOT_BY_NORMAL_USERS.format("create"), is_system_error=True)
    if not name.strip():
        raise AccessChangeRefused("username can not be blank")
    if not (change.password or "").strip():
        raise AccessChangeRefused("password can not be blank")
    if name in tables.users:
        raise AccessChangeRefused("The user is existed")
    user = User(
        name=name,
        password=change.password or "",
        user_type=user_type,
        status=_choice(UserStatus, change.status, UserStatus.ENABLE, "user status"),
    )
    return replace(tables, users={**tables.users, name: user})


def update_user(
    tables: AccessTables, caller: User | None, name: str, change: UserChange
) -> AccessTables:
    """Change a user; super users are changed and made by super users alone.

    Raises AccessChangeRefused.
    """
    user_type = _choice(UserType, change.user_type, None, "user type")
    if user_type is UserType.SUPER and not _is_super(caller):
        raise AccessChangeRefused(NOT_BY_NORMAL_USERS.format("update"), is_system_error=True)
    if (user := tables.users.get(name)) is None:
        raise AccessChangeRefused("The user is not exist")
    _check_target(user, caller)
    changed = replace(
        user,
        password=change.password if (change.password or "").strip() else user.password,
        user_type=user_type or user.user_type,
        status=_choice(UserStatus, change.status, None, "user status") or user.status,
    )
    return replace(tables, users={**tables.users, name: changed})


def delete_user(tables: AccessTables, caller: User | None, name: str) -> AccessTables:
    """Remove a user and its ACL; one that does not exist is no error.

    Raises AccessChangeRefused for a super user whom a normal one would remove.
    """
    if (user := tables.users.get(name)) is not None:
        _check_target(user, caller)
    return AccessTables(users=_without(tables.users, name), acls=_without(tables.acls, name))


def change_acl(tables: AccessTables, name: str, changes: PolicyChanges) -> AccessTables:
    """Add entries to the ACL of a user, which is created if there is none.

    An entry takes the place of those with the same resource in its policy. Raises
    AccessChangeRefused.
    """
    if name not in tables.users:
        raise AccessChangeRefused(f"The subject of {SUBJECT_PREFIX}{name} is not exist.")
    before = tables.acls.get(name)
    acl = before or Acl()
    for policy, entries in changes:
        merged = _merged(acl.entries(policy), entries) if before else tuple(entries)
        acl = acl.with_entries(policy, merged)
    if len(acl.custom) + len(acl.default) > ENTRIES_MAX:
        raise AccessChangeRefused(
            f"The policy entries are too many: {ENTRIES_MAX} are allowed for one user"
        )
    return replace(tables, acls={**tables.acls, name: acl})


def delete_acl(
    tables: AccessTables, name: str, resource: str | None, policy_type: str | None
) -> AccessTables:
    """Remove the entry of a resource from one policy, or the whole ACL without a resource.

    Raises AccessChangeRefused, also for a text that is no resource: Apache's brokers remove the
    whole ACL then.
    """
    policy = _choice(PolicyType, policy_type, PolicyType.CUSTOM, "policy type")
    acl = known_acl(tables, name)
    if acl is None:
        raise AccessChangeRefused("The acl is not exist.")
    if not resource:
        return replace(tables, acls=_without(tables.acls, name))
    if (pattern := parse_pattern(resource)) is None:
        raise AccessChangeRefused("The resource is null.")
    kept = tuple(entry for entry in acl.entries(policy) if entry.resource != pattern)
    acl = acl.with_entries(policy, kept)
    if acl == Acl():
        return replace(tables, acls=_without(tables.acls, name))
    return replace(tables, acls={**tables.acls, name: acl})


def known_acl(tables: AccessTables, name: str) -> Acl | None:
    """The ACL of a user, None without one. Raises AccessChangeRefused for an unknown user."""
    if name not in tables.users:
        raise AccessChangeRefused("The subject is not exist.")
    return tables.acls.get(name)


def subject_name(subject: str | None) -> str:
    """The user's name of `User:name`. Raises AccessChangeRefused for any other subject."""
    kind, colon, name = (subject or "").partition(":")
    if not colon or not name:
        raise AccessChangeRefused("The subject is null.")
    if kind.lower() != "user":
        raise AccessChangeRefused(
            "An system error occurred, please try again later.", is_system_error=True
        )
    return name


def policy_entry(
    resource: str | None,
    actions: Sequence[str] | None,
    sources: Sequence[str] | None,
    decision: str | None,
) -> PolicyEntry:
    """Check and make an entry of a policy from its texts. Raises AccessChangeRefused."""
    if (pattern := parse_pattern(resource or "")) is None:
        raise AccessChangeRefused("The resource is null.")
    if any(action.lower() == "any" for action in actions or ()):
        raise AccessChangeRefused("The actions can not be Any.")
    known = tuple(dict.fromkeys(a for text in actions or () if (a := _known(Action, text))))
    if not known:
        raise AccessChangeRefused("The actions is empty.")
    if not all(map(is_source, sources or ())):
        raise AccessChangeRefused("The source ip is invalid.")
    if (decided := _known(AccessDecision, decision or "")) is None:
        raise AccessChangeRefused("The decision is null or illegal.")
    return PolicyEntry(
        resource=pattern, actions=known, decision=decided, sources=tuple(sources or ())
    )


def policy_type(text: str | None) -> PolicyType:
    """The policy of a text; None is Custom. Raises AccessChangeRefused for any other text."""
    return _choice(PolicyType, text, PolicyType.CUSTOM, "policy type")


def _merged(
    before: Sequence[PolicyEntry], changes: Sequence[PolicyEntry]
) -> tuple[PolicyEntry, ...]:
    """The entries of a policy after changes: replaced where they were, new ones at the end."""
    left = {change.resource: change for change in changes}
    replaced = left.keys() & {entry.resource for entry in before}
    entries = [
        entry if entry.resource not in replaced else left.pop(entry.resource)
        for entry in before
        if entry.resource not in replaced or entry.resource in left
    ]
    return (*entries, *left.values())


def _check_target(user: User, caller: User | None) -> None:
    if user.is_super and not _is_super(caller):
        raise AccessChangeRefused(NOT_BY_NORMAL_USERS.format("update"))


def _is_super(caller: User | None) -> bool:
    return caller is not None and caller.is_super


def _known(kinds: type[K], text: str) -> K | None:
    return next((kind for kind in kinds if kind.lower() == text.lower()), None)


D = TypeVar("D", UserType, UserStatus, PolicyType)


@overload
def _choice(kinds: type[D], text: str | None, default: D, what: str) -> D: ...


@overload
def _choice(kinds: type[D], text: str | None, default: None, what: str) -> D | None: ...


def _choice(kinds: type[D], text: str | None, default: D | None, what: str) -> D | None:
    if not text:
        return default
    if (kind := _known(kinds, text)) is None:
        raise AccessChangeRefused(f"The {what} is illegal: it is one of {', '.join(kinds)}")
    return kind


V = TypeVar("V")


def _without(table: Mapping[str, V], name: str) -> dict[str, V]:
    return {key: value for key, value in table.items() if key != name}
