"""DeliveryServices: the part of the broker that brings messages to their queues later.

delay level ─┐
timer ───────┼─▶ due ──▶ ingest       a message that cannot be handled is set aside
half ────────┤
pop ─────────┘
"""

import msgspec

from roquet.broker.ingest.retry_topics import RetryTopics
from roquet.broker.ingest.set_aside import SetAside
from roquet.broker.services.delayed_delivery import DelayedDelivery
from roquet.broker.services.delivery_checkpoints import DeliveryCheckpoints
from roquet.broker.services.revive import PopRevive
from roquet.broker.services.timer.timer import Timer
from roquet.broker.services.transactions.transactions import Transactions


class DeliveryServices(msgspec.Struct, frozen=True, kw_only=True):
    """The services that deliver messages later, and where failed messages go."""

    delay: DelayedDelivery
    timer: Timer
    transactions: Transactions
    revive: PopRevive
    checkpoints: DeliveryCheckpoints
    retry_topics: RetryTopics
    set_aside: SetAside
