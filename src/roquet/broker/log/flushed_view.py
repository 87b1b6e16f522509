"""Views of the log: consumers see what is confirmed, or what is on the disk.

    append ──▶ hidden, and a flush is asked for ──▶ on the disk ──▶ shown: waiting pulls wake

A message that is read before it is on the disk may go with the power of the machine, and another
one gets its offset. Where roles are fixed `FlushedView` hides it, with synchronous flush; under a
controller `ConfirmedView` hides what is not on the disk, and what other members of the set lack.
Source: Apache RocketMQ 5.5.0, where dispatch stops at the flushed position with SYNC_FLUSH, on a
replica as well.
"""

from roquet.broker.log.long_polling import LongPolling
from roquet.broker.log.message_log import MessageLog
from roquet.broker.settings.config import BrokerConfig
from roquet.store.store import Store


class ConfirmedView:
    """View of a log for consumers, which also wakes those who wait for messages."""

    def __init__(self, store: Store, arrivals: LongPolling) -> None:
        self._store = store
        self._arrivals = arrivals
        self.position: int | None = None
        """Consumers see messages that end before it; None: all."""

    def show(self, position: int | None) -> None:
        """Show the messages that end before a position, or all of them."""
        if position is not None:
            self._arrivals.hold(self._dispatched)
        self.position = position
        self._store.set_confirmed(position)
        self._arrivals.show(position)

    def _dispatched(self) -> int:
        return self._store.raw.dispatched

    def cut(self) -> None:
        """Wake those who wait: the log was cut, and queues may end before what they wait for."""
        self._arrivals.forget_hidden()
        self._arrivals.look_again(self._store.topics())


class FlushedView(ConfirmedView):
    """View of a log for consumers, by the setting `sync_flush`; without it they see all."""

    def __init__(self, message_log: MessageLog, config: BrokerConfig) -> None:
        """Show what is stored already, which is brought to the disk before. Raises StoreFailed.

        A process that was killed leaves messages that are in memory alone.
        """
        super().__init__(message_log.store, message_log.arrivals)
        self._flush = message_log.flush
        self._shown: int | None = None
        """Consumers have seen messages in front of it: they stay visible. None: they see all."""
        if config.sync_flush:
            self._store.flush_log()
        self.configure(config)

    def configure(self, config: BrokerConfig) -> None:
        """Hide what is stored from now on until it is on the disk, or show all."""
        if not config.sync_flush and self._shown is not None:
            self._shown = None
            self.show(None)
        elif config.sync_flush and self._shown is None:
            self._shown = self._dispatched()
            self._flush.request()
            self.show_flushed()

    def show_flushed(self) -> None:
        """Show what is on the disk by now; to be called after each flush."""
        if self._shown is not None:
            self.show(max(self._shown, self._store.flushed_position))
