"""Call[Reply]: a request that knows its code, its fields and its reply.

Every field of a call or reply travels in the header's string map under its wire name
(`rename="camel"`, or `msgspec.field(name=...)`), but for `body`, and a reply's `code` and `remark`,
which have places of their own. None means absent.
"""

from typing import Annotated, ClassVar, Generic, TypeAlias, TypeVar

import msgspec

from roquet.wire.codes import RequestCode, ResponseCode

Int: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
"""A number of 32 bits, as records and Java's headers hold it; more is ill-typed."""

Long: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""A number of 64 bits."""


class Reply(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a peer answers: a code, a remark when there is something to say, a body."""

    code: int = ResponseCode.SUCCESS
    remark: str | None = None
    body: bytes = b""


R = TypeVar("R", bound=Reply, covariant=True)


class Call(msgspec.Struct, Generic[R], frozen=True, kw_only=True, rename="camel"):
    """One conversation's request."""

    code: ClassVar[RequestCode]
    reply: ClassVar[type[Reply]] = Reply
    accepts: ClassVar[frozenset[int]] = frozenset({ResponseCode.SUCCESS})
    """The response codes that are answers, not refusals."""

    body: bytes = b""


NOT_FIELDS = frozenset({"code", "remark", "body"})
"""Attributes that have a place of their own in a command."""
