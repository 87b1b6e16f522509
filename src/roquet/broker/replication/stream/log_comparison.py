"""LogComparison: whether a replica's log is still its master's, where roles are fixed.

    last record here ── position ──▶ request 33 ──▶ the same bytes      follow
                                               └──▶ others, or none     an operator decides

A master whose machine lost power has perhaps lost the end of its log. Once it has written as much
again the end of a replica's log is a possible one, and neither end of the stream notices. So a
replica compares its last record before it reports. Epochs do the same under a controller.
"""

from typing import Final

from roquet.broker.replication.copies.master_tables import MasterTables
from roquet.broker.replication.copies.metadata_copy import identity_fault
from roquet.broker.replication.role import RoleCell
from roquet.broker.replication.stream.stream_facts import LogDiverged, StreamError
from roquet.broker.settings.runtime_settings import RuntimeSettings
from roquet.log_records import logger
from roquet.model.errors import CallError, CallRefused, ConnectFailed, FieldError
from roquet.model.settings import join_address, parse_address
from roquet.net.pool import ChannelPool
from roquet.store.store import Store
from roquet.wire.calls.query import ViewMessage
from roquet.wire.codes import ResponseCode

log = logger(__name__)

TIMEOUT_MS: Final = 3_000
"""Timeout of each of the two questions in ms."""

STREAM_ABOVE: Final = 1
"""How far a broker's stream is above its port for clients, unless haListenPort says otherwise."""

NOT_FOUND: Final = "can not find message by the offset"
"""Begin of the remark, ours and Apache's, for a position at which no record begins."""

UNSHOWN: Final = frozenset({ResponseCode.NO_PERMISSION, ResponseCode.REQUEST_CODE_NOT_SUPPORTED})
"""Codes of a master that shows its records to nobody, or not to this replica."""

REMEDY: Final = (
    "the logs are of different pasts, as when the master lost the end of its log with its power;"
    " nothing is copied or acknowledged before an operator has decided: to keep the master's log,"
    " start this replica in an empty directory; to keep this one, promote this replica and empty"
    " the master's directory"
)


class LogComparison:
    """Compares the last record of this log with the master's at the same position."""

    def __init__(
        self, store: Store, settings: RuntimeSettings, role: RoleCell, pool: ChannelPool
    ) -> None:
        self._store = store
        self._settings = settings
        self._role = role
        self._pool = pool
        self._complaint = ""

    async def check(self, stream: str) -> None:
        """Check the master whose stream is at HOST:PORT.

        Raises LogDiverged for another log, StreamError when the master is none of this group or
        does not answer now. A master that shows no records is followed all the same.
        """
        address, is_known = self._address(stream)
        try:
            await self._check(address)
        except (CallError, FieldError) as error:
            if not _is_unshown(error, is_known=is_known):
                text = f"its log cannot be compared with this one: {error}"
                raise StreamError(text) from error
            self._warn(address, error)

    def _address(self, stream: str) -> tuple[str, bool]:
        """The master's address for clients, and whether a name server has told it.

        A master that the settings name is perhaps not the one that name servers know.
        """
        master = self._role.current.master
        if self._settings.config.ha_master is None and master is not None:
            return master, True
        host, port = parse_address(stream, "haMasterAddress")
        return join_address(host, port - STREAM_ABOVE), False

    async def _check(self, address: str) -> None:
        config = self._settings.config
        identity = await MasterTables(self._pool, address).identity()
        group = (config.cluster_name, config.broker_name)
        if fault := identity_fault(identity, group, self._role.current.broker_id):
            raise StreamError(fault)
        own = self._store.raw.last_record()
        if own is None:
            return
        position, record = own
        there = await self._record(address, position)
        if there != record:
            what = "is another one" if there else "is none"
            raise LogDiverged(
                f"the record at {position}, the last one here, {what} at {address}: {REMEDY}"
            )

    async def _record(self, address: str, position: int) -> bytes:
        """The master's record at a position; empty if it has none."""
        try:
            return (await self._pool.call(address, ViewMessage(offset=position), TIMEOUT_MS)).body
        except CallRefused as error:
            if error.code == ResponseCode.SYSTEM_ERROR and NOT_FOUND in (error.remark or ""):
                return b""
            raise

    def _warn(self, address: str, error: Exception) -> None:
        """Log that the logs are not compared; the same reason once."""
        if (text := str(error)) != self._complaint:
            self._complaint = text
            log.warning(
                "the master's log is copied without a look whether this one is a part of it: %s"
                " does not show its records: %s",
                address, text,
            )  # fmt: skip


def _is_unshown(error: CallError | FieldError, *, is_known: bool) -> bool:
    """Whether asking again later would not help either."""
    if isinstance(error, CallRefused):
        return error.code in UNSHOWN
    return isinstance(error, ConnectFailed) and not is_known
