"""LogsInForce: in how many logs a message is before its sender is answered by an elected master.

    setting raised   ──▶ in force at once
    setting lowered  ──▶ said by a heartbeat ──▶ stored, lease granted ──▶ in force

A controller that elects after losses compares as many members as this number asks for: it must know
of a lower one before a message is acknowledged by it.
"""

from roquet.broker.replication.confirmation.set_acknowledgements import needed_of
from roquet.broker.settings.config import BrokerConfig
from roquet.broker.settings.runtime_settings import RuntimeSettings


class LogsInForce:
    """Number of logs that have to hold a message."""

    def __init__(self, settings: RuntimeSettings) -> None:
        self._wanted = self._known = needed_of(settings.config)
        self.current = self._wanted
        """The number, or ALL_OF_THE_SET."""
        settings.subscribe(self._changed, "in_sync_replicas")

    def asked(self, said: int) -> None:
        """Note that a lease is asked for with this number, which the controller may store."""
        self._known = max(self._known, said)
        self._decide()

    def granted(self, said: int) -> None:
        """Note that a lease was granted to a master that said this number when it asked."""
        self._known = said
        self._decide()

    def _changed(self, config: BrokerConfig) -> None:
        self._wanted = needed_of(config)
        self._decide()

    def _decide(self) -> None:
        # ALL_OF_THE_SET does not change while the broker runs, so two numbers are compared.
        self.current = max(self._wanted, self._known)
