"""FlushedView: with synchronous flush consumers see what is on the disk, where roles are fixed.

    append ──▶ hidden, and a flush is asked for ──▶ on the disk ──▶ shown: waiting pulls wake

A message that is read before it is on the disk may go with the power of the machine, and another
one gets its offset. Source: Apache RocketMQ 5.5.0, where dispatch stops at the flushed position
with SYNC_FLUSH, on a replica as well. Under a controller `ConfirmedView` hides what is not on the
disk, and what other members of the set lack.
"""

from roquet.broker.log.message_log import MessageLog
from roquet.broker.settings.runtime_settings import RuntimeSettings


class FlushedView:
    """View of a log for consumers, by the setting `sync_flush`; without it they see all."""

    def __init__(self, message_log: MessageLog, settings: RuntimeSettings) -> None:
        """Show what is stored already, which is brought to the disk before. Raises StoreFailed.

        A process that was killed leaves messages that are in memory alone.
        """
        self._store = message_log.store
        self._raw = message_log.store.raw
        self._flush = message_log.flush
        self._arrivals = message_log.arrivals
        self._settings = settings
        self._shown = 0
        """Consumers have seen messages in front of it: they stay visible."""
        settings.subscribe(lambda _: self._configure(), "sync_flush")
        self._flush.on_flushed.append(self._show_flushed)
        if self._is_on:
            self._store.flush_log()
            self._configure()

    @property
    def _is_on(self) -> bool:
        return self._settings.config.sync_flush

    def _configure(self) -> None:
        """Hide what is stored from now on until it is on the disk, or show all."""
        if self._is_on:
            self._shown = self._position()
            self._arrivals.hold(self._position)
            self._arrivals.on_hidden = self._flush.request  # services ask for no flush
            self._flush.request()
            self._show_flushed()
        else:
            self._store.set_confirmed(None)
            self._arrivals.show(None)

    def _position(self) -> int:
        return self._raw.dispatched

    def _show_flushed(self) -> None:
        if self._is_on:
            position = max(self._shown, self._store.flushed_position)
            self._store.set_confirmed(position)
            self._arrivals.show(position)
