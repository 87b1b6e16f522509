"""Call[Reply]: a request with its code, its fields and its reply type.

Every field of a call or reply is an entry of the header's string map under its wire name
(`rename="camel"`, or `msgspec.field(name=...)`), except `body`, and a reply's `code` and `remark`,
which are separate parts of a command. None means absent.
"""

from typing import Annotated, ClassVar, Final, Generic, TypeAlias, TypeVar, get_args

import msgspec

from roquet.wire.codes import RequestCode, ResponseCode

Int: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
"""A 32-bit number, as in records and Java's headers; a larger one is ill-typed."""

Long: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""A 64-bit number."""


class Reply(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A peer's answer: a code, an optional remark, a body."""

    code: int = ResponseCode.SUCCESS
    remark: str | None = None
    body: bytes = b""


R = TypeVar("R", bound=Reply, covariant=True)


class Call(msgspec.Struct, Generic[R], frozen=True, kw_only=True, rename="camel"):
    """A request."""

    code: ClassVar[RequestCode]
    reply: ClassVar[type[Reply]] = Reply
    """That of the base `Call[...]`."""
    accepts: ClassVar[frozenset[int]] = frozenset({ResponseCode.SUCCESS})
    """Response codes that are answers, not refusals."""

    body: bytes = b""

    def __init_subclass__(cls) -> None:
        """Set the type of the reply."""
        for base in vars(cls).get("__orig_bases__", ()):
            (cls.reply,) = get_args(base)


ACCESS_KEY: Final = "AccessKey"
"""Header field with the access key of a signed request's sender."""

NOT_FIELDS = frozenset({"code", "remark", "body"})
"""Attributes that are not in the header's map."""
