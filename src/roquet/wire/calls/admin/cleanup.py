"""Clean-ups on an operator's request: they also happen automatically, but later."""

from typing import ClassVar

from roquet.wire.call import Call, Reply
from roquet.wire.codes import RequestCode


class CleanQueues(Call[Reply], frozen=True, kw_only=True):
    """Delete the files of queues whose messages retention has deleted."""

    code: ClassVar = RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE


class CleanTopics(Call[Reply], frozen=True, kw_only=True):
    """Delete the queues of topics that have no settings any more."""

    code: ClassVar = RequestCode.CLEAN_UNUSED_TOPIC


class DeleteExpired(Call[Reply], frozen=True, kw_only=True):
    """Delete the files of the log that are old enough, at any hour."""

    code: ClassVar = RequestCode.DELETE_EXPIRED_COMMITLOG
