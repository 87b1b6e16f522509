"""Query assignment, set request mode: the broker divides a group's queues itself."""

from typing import ClassVar

from roquet.wire.call import Call, Reply
from roquet.wire.codes import RequestCode


class QueryAssignment(Call[Reply], frozen=True, kw_only=True):
    """Get one member's queues. Bodies: AssignmentQuery, QueueAssignments."""

    code: ClassVar = RequestCode.QUERY_ASSIGNMENT


class SetRequestMode(Call[Reply], frozen=True, kw_only=True):
    """Make a group pull or pop a topic; the body is a RequestMode."""

    code: ClassVar = RequestCode.SET_MESSAGE_REQUEST_MODE
