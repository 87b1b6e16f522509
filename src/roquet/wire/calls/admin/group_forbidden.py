"""Groups that are forbidden to read a topic."""

from typing import ClassVar

from roquet.wire.call import Call, Reply
from roquet.wire.codes import RequestCode


class ForbidGroup(Call[Reply], frozen=True, kw_only=True):
    """Forbid a group to read a topic, allow it, or query that; the body is a GroupForbidden.

    The header says everything: a request's body with the same content is ignored.
    """

    code: ClassVar = RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN

    group: str
    topic: str
    readable: bool | None = None
    """None changes nothing."""
