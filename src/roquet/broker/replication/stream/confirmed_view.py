"""ConfirmedView: hides messages from consumers until they are confirmed."""

from roquet.broker.log.long_polling import LongPolling
from roquet.store.store import Store


class ConfirmedView:
    """View of a log for consumers, which also wakes those who wait for messages."""

    def __init__(self, store: Store, arrivals: LongPolling) -> None:
        self._store = store
        self._arrivals = arrivals
        self.position: int | None = None
        """Consumers see messages that end before it; None: all."""
        self.show(store.confirmed_at_open)

    def show(self, position: int | None) -> None:
        """Show the messages that end before a position, or all of them."""
        if position is not None:
            self._arrivals.hold(self._position)
        self.position = position
        self._store.set_confirmed(position)
        self._arrivals.show(position)

    def _position(self) -> int:
        return self._store.raw.dispatched

    def cut(self) -> None:
        """Wake those who wait: the log was cut, and queues may end before what they wait for."""
        self._arrivals.forget_hidden()
        self._arrivals.look_again(self._store.topics())
