"""Which topics a group may not read."""

from typing import ClassVar

from roquet.wire.call import Call, Reply
from roquet.wire.codes import RequestCode


class ForbidGroup(Call[Reply], frozen=True, kw_only=True):
    """Forbid a group to read a topic, allow it, or just ask; the reply's body is a GroupForbidden.

    What is asked in the header is not needed twice: a body that says it, too, is passed over.
    """

    code: ClassVar = RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN

    group: str
    topic: str
    readable: bool | None = None
    """None changes nothing."""
