"""Lock and unlock queues of ordered groups."""

from typing import ClassVar

from roquet.wire.call import Call, Reply
from roquet.wire.codes import RequestCode


class LockQueues(Call[Reply], frozen=True, kw_only=True):
    """Lock queues for one member of an ordered group; bodies: LockBody, LockedQueues."""

    code: ClassVar = RequestCode.LOCK_BATCH_MQ


class UnlockQueues(Call[Reply], frozen=True, kw_only=True):
    """Unlock queues; the body is a LockBody."""

    code: ClassVar = RequestCode.UNLOCK_BATCH_MQ
