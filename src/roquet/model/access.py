"""Access: users, resources, and the policies that say who may do what (ACL 2.0)."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Self

import msgspec


class Action(StrEnum):
    """Use of a resource by a request; `ALL` in a policy stands for every action."""

    ALL = "All"
    PUB = "Pub"
    SUB = "Sub"
    CREATE = "Create"
    UPDATE = "Update"
    DELETE = "Delete"
    GET = "Get"
    LIST = "List"


class ResourceType(StrEnum):
    """The kind of a resource."""

    CLUSTER = "Cluster"
    NAMESPACE = "Namespace"
    TOPIC = "Topic"
    GROUP = "Group"


class Resource(msgspec.Struct, frozen=True):
    """One topic, group, namespace or cluster, as requests name it."""

    kind: ResourceType
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


class Match(StrEnum):
    """How a pattern names resources: `LITERAL` one, `PREFIX` by the start of names, `ANY` all."""

    LITERAL = "literal"
    PREFIX = "prefix"
    ANY = "any"


class ResourcePattern(msgspec.Struct, frozen=True):
    """The resources of a policy entry: `*`, `Topic:*`, `Topic:orders-*` or `Topic:orders`."""

    kind: ResourceType | None
    """None stands for every kind."""
    match: Match
    name: str = ""
    """The name, or what it begins with; empty for `ANY`."""

    def __str__(self) -> str:
        star = "" if self.match is Match.LITERAL else "*"
        return star if self.kind is None else f"{self.kind}:{self.name}{star}"


class AccessDecision(StrEnum):
    """Decision of a policy entry on the requests that it matches."""

    ALLOW = "Allow"
    DENY = "Deny"


class PolicyType(StrEnum):
    """The policy of an entry: `DEFAULT` counts only where no `CUSTOM` entry matches."""

    CUSTOM = "Custom"
    DEFAULT = "Default"


class PolicyEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a policy: who comes from `sources` may, or may not, do `actions`."""

    resource: ResourcePattern
    actions: tuple[Action, ...]
    decision: AccessDecision
    sources: tuple[str, ...] = ()
    """IP addresses and CIDR blocks; empty stands for everywhere."""


class Acl(msgspec.Struct, frozen=True, kw_only=True):
    """The policies of one user."""

    custom: tuple[PolicyEntry, ...] = ()
    default: tuple[PolicyEntry, ...] = ()

    def entries(self, kind: PolicyType) -> tuple[PolicyEntry, ...]:
        """The entries of one policy."""
        return self.custom if kind is PolicyType.CUSTOM else self.default

    def with_entries(self, kind: PolicyType, entries: tuple[PolicyEntry, ...]) -> Self:
        """This ACL with other entries in one policy."""
        return msgspec.structs.replace(self, **{kind.lower(): entries})


class UserType(StrEnum):
    """A `SUPER` user may do everything, without a policy."""

    SUPER = "Super"
    NORMAL = "Normal"


class UserStatus(StrEnum):
    """Whether a user's requests are accepted at all."""

    ENABLE = "enable"
    DISABLE = "disable"


class User(msgspec.Struct, frozen=True, kw_only=True):
    """A user; the printed form does not contain the password."""

    name: str
    password: str
    """The secret key of signatures: the server needs it in clear to check them."""
    user_type: UserType = UserType.NORMAL
    status: UserStatus = UserStatus.ENABLE

    @property
    def is_super(self) -> bool:
        """Whether it may do everything."""
        return self.user_type is UserType.SUPER

    def __repr__(self) -> str:
        return f"User(name={self.name!r}, user_type={self.user_type!s}, status={self.status!s})"

    def __rich_repr__(self) -> list[tuple[str, str]]:
        return [("name", self.name), ("user_type", self.user_type), ("status", self.status)]


class AccessTables(msgspec.Struct, frozen=True, kw_only=True):
    """All users of a server and their ACLs, by user name. A change makes another value."""

    users: Mapping[str, User] = {}
    acls: Mapping[str, Acl] = {}
