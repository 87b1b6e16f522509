"""FixedRoles: the parts of a broker whose settings say whether it is a master or a replica."""

from collections.abc import Coroutine, Iterator
from random import Random
from typing import Any

from msgspec.structs import replace

from roquet.broker.log.flushed_view import FlushedView
from roquet.broker.log.message_log import MessageLog
from roquet.broker.replication.acting_master import LOOK_MS, ActingMaster, CopyBack, ReturnTarget
from roquet.broker.replication.confirmation.acknowledgements import Acknowledgements
from roquet.broker.replication.role import Role, RoleCell
from roquet.broker.replication.stream.framing import classic_master
from roquet.broker.replication.stream.stream_client import StreamClient
from roquet.broker.replication.stream.stream_server import StreamServer
from roquet.broker.settings.config import BrokerConfig
from roquet.broker.settings.runtime_settings import RuntimeSettings
from roquet.net.clock import Clock, every
from roquet.net.pool import ChannelPool
from roquet.rules.replication.acknowledgement import BrokerRole, DeploymentMode


class FixedRoles:
    """Parts of a broker whose role does not change, unless an operator changes its settings."""

    def __init__(
        self,
        message_log: MessageLog,
        settings: RuntimeSettings,
        clock: Clock,
        return_target: ReturnTarget,
    ) -> None:
        """Begin in the role of the settings. Raises StoreFailed."""
        config, store = settings.config, message_log.store
        self._settings = settings
        self._clock = clock
        self._return_target = return_target
        self._view = FlushedView(message_log, config)
        self.flush_hidden = message_log.flush.request
        """Called for each message that is hidden until it is on the disk."""
        self.role = RoleCell(_first_role(config))
        self.acting_master = ActingMaster(settings, self.role)
        is_fixed = not config.has_acting_master
        mode = DeploymentMode.FIXED_ROLES if is_fixed else DeploymentMode.ACTING_MASTER
        self.acknowledgements = Acknowledgements(
            store, message_log.flush, settings, clock, self.role, mode
        )
        framing = classic_master(store, self.acknowledgements, settings)
        self.stream_server = StreamServer(store, settings, clock, self.role, framing)
        self.stream_client = StreamClient(message_log, settings, clock, self.role)

    def settings_fault(self, _before: BrokerConfig, _config: BrokerConfig) -> str | None:
        """Why settings cannot be in force here; None when they can."""
        return None

    def configure(self, config: BrokerConfig) -> None:
        """Apply changed settings: what consumers see, and which master a replica follows."""
        self._view.configure(config)
        if config.ha_master is not None and not self.role.current.is_master:
            self.role.change(replace(self.role.current, master_stream=config.ha_master))

    def follow_flush(self) -> None:
        """Show what is on the disk by now."""
        self._view.show_flushed()

    def work(
        self, _address: str, pool: ChannelPool, _rng: Random
    ) -> Iterator[Coroutine[Any, Any, None]]:
        """Tasks of a group in which a replica stands in for the master; none in another."""
        if not self._settings.config.has_acting_master:
            return
        yield every(LOOK_MS, lambda _: self.acting_master.step(pool), self._clock)
        if self.role.current.is_master:
            target, settings = self._return_target, self._settings
            yield CopyBack(target, self.role, settings, pool, self._clock).serve()

    async def release(self) -> None:
        """Nobody else is to lead when this broker stops."""


def _first_role(config: BrokerConfig) -> Role:
    """Role of a broker whose settings fix it.

    A replica gets the log from where the settings say; None: where name servers say. A master that
    a replica may have stood in for takes no messages before it knows how far groups are
    (`CopyBack`).
    """
    is_master = config.broker_role is not BrokerRole.SLAVE
    return Role(
        role=config.broker_role,
        broker_id=config.broker_id,
        master_stream=None if is_master else config.ha_master,
        is_fenced=is_master and config.has_acting_master,
    )
