"""Access: users and their ACLs, managed over the network (ACL 2.0).

The `access_key` of a call is the user who asks: the signature adds it.
"""

from typing import ClassVar

import msgspec

from roquet.wire.call import Call, Reply
from roquet.wire.codes import RequestCode
from roquet.wire.signing import ACCESS_KEY

SUCCESS_REMARK = "not set any response code"
"""Remark of every success of these requests: Apache's brokers never clear that default."""


class UserInfo(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A user; the printed form does not contain the password."""

    username: str | None = None
    password: str | None = None
    user_type: str | None = None
    """Super or Normal."""
    user_status: str | None = None
    """enable or disable."""

    def __repr__(self) -> str:
        return f"UserInfo(username={self.username!r}, user_type={self.user_type!r})"


class PolicyEntryInfo(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One entry of a policy."""

    resource: str | None = None
    """`*`, `Topic:*`, `Topic:orders-*`, `Topic:orders`; also of Group and Cluster."""
    actions: list[str] | None = None
    source_ips: list[str] | None = None
    """IP addresses and CIDR blocks; None stands for everywhere."""
    decision: str | None = None
    """Allow or Deny."""


class PolicyInfo(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One policy of a user."""

    policy_type: str | None = None
    """Custom or Default; None is Custom."""
    entries: list[PolicyEntryInfo] | None = None


class AclInfo(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The policies of one user."""

    subject: str | None = None
    """`User:` and the name."""
    policies: list[PolicyInfo] | None = None


class CreateUser(Call[Reply], frozen=True, kw_only=True):
    """Create a user; the body is a UserInfo with the password."""

    code: ClassVar = RequestCode.AUTH_CREATE_USER

    username: str | None = None
    access_key: str | None = msgspec.field(default=None, name=ACCESS_KEY)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(username={self.username!r})"


class UpdateUser(Call[Reply], frozen=True, kw_only=True):
    """Change a user; fields that the body, a UserInfo, leaves out stay."""

    code: ClassVar = RequestCode.AUTH_UPDATE_USER

    username: str | None = None
    access_key: str | None = msgspec.field(default=None, name=ACCESS_KEY)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(username={self.username!r})"


class DeleteUser(Call[Reply], frozen=True, kw_only=True):
    """Delete a user and its ACL."""

    code: ClassVar = RequestCode.AUTH_DELETE_USER

    username: str | None = None
    access_key: str | None = msgspec.field(default=None, name=ACCESS_KEY)


class GetUser(Call[Reply], frozen=True, kw_only=True):
    """Get one user; the reply's body is a UserInfo, or empty if there is no such user."""

    code: ClassVar = RequestCode.AUTH_GET_USER

    username: str | None = None
    access_key: str | None = msgspec.field(default=None, name=ACCESS_KEY)


class ListUsers(Call[Reply], frozen=True, kw_only=True):
    """Get all users whose names contain a text; the body is a list of UserInfo, empty without."""

    code: ClassVar = RequestCode.AUTH_LIST_USER

    filter: str | None = None
    access_key: str | None = msgspec.field(default=None, name=ACCESS_KEY)


class CreateAcl(Call[Reply], frozen=True, kw_only=True):
    """Create the ACL of a user, or add to it; the body is an AclInfo, whose subject counts."""

    code: ClassVar = RequestCode.AUTH_CREATE_ACL

    subject: str | None = None
    access_key: str | None = msgspec.field(default=None, name=ACCESS_KEY)


class UpdateAcl(Call[Reply], frozen=True, kw_only=True):
    """Add entries to the ACL of a user, in the place of those with the same resource."""

    code: ClassVar = RequestCode.AUTH_UPDATE_ACL

    subject: str | None = None
    access_key: str | None = msgspec.field(default=None, name=ACCESS_KEY)


class DeleteAcl(Call[Reply], frozen=True, kw_only=True):
    """Delete the entry of a resource, or the whole ACL of a user."""

    code: ClassVar = RequestCode.AUTH_DELETE_ACL

    subject: str | None = None
    policy_type: str | None = None
    """The policy of the entry; None is Custom."""
    resource: str | None = None
    """None deletes the whole ACL."""
    access_key: str | None = msgspec.field(default=None, name=ACCESS_KEY)


class GetAcl(Call[Reply], frozen=True, kw_only=True):
    """Get the ACL of a user; the reply's body is an AclInfo, or empty if there is none."""

    code: ClassVar = RequestCode.AUTH_GET_ACL

    subject: str | None = None


class ListAcls(Call[Reply], frozen=True, kw_only=True):
    """Get all ACLs; the reply's body is a list of AclInfo, or empty if there is none."""

    code: ClassVar = RequestCode.AUTH_LIST_ACL

    subject_filter: str | None = None
    """Part of the subject."""
    resource_filter: str | None = None
    """Part of the resources: only their entries are returned."""
