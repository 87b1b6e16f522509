"""LogComparison: whether a replica's log is still its master's.

    last record here ── position ──▶ request 33 ──▶ the same bytes      follow
                                               └──▶ others, or none     an operator decides

A master whose machine lost power has perhaps lost the end of its log. Once it has written as much
again the end of a replica's log is a possible one, and neither end of the stream notices. So a
replica compares its last record before it reports. Under a controller epochs say up to where two
logs are equal; there it compares the last record in front of that position, since two groups of one
name have equal epochs as well: each began with epoch 1 at position 0.
"""

import errno
from typing import Final, NoReturn

from roquet.broker.replication.master_tables import MasterIdentity, MasterTables
from roquet.broker.replication.role import RoleCell
from roquet.broker.replication.stream.framing import LogDiverged, StreamError
from roquet.broker.settings.runtime_settings import RuntimeSettings
from roquet.log_records import logger
from roquet.model.errors import CallError, CallRefused, ConnectFailed, ConnectionLost, FieldError
from roquet.model.settings import join_address, parse_address
from roquet.model.topic import MASTER_ID
from roquet.net.pool import ChannelPool
from roquet.store.store import Store
from roquet.wire.calls.admin.stats import GetRuntimeInfo
from roquet.wire.calls.bodies import KVTable
from roquet.wire.calls.query import ViewMessage
from roquet.wire.codes import ResponseCode
from roquet.wire.fastjson import codec

log = logger(__name__)

TIMEOUT_MS: Final = 3_000
"""Timeout of each question in ms."""

STREAM_ABOVE: Final = 1
"""How far a broker's stream is above its port for clients, unless haListenPort says otherwise."""

MISSES_MAX: Final = 20
"""Looks in a row, 1 s apart, that find no master at the port that is guessed; then it is believed
not to be there. A master that starts listens there a moment after its stream."""

NOT_FOUND: Final = "can not find message by the offset"
"""Begin of the remark, ours and Apache's, for a position at which no record begins."""

UNSHOWN: Final = frozenset({ResponseCode.NO_PERMISSION, ResponseCode.REQUEST_CODE_NOT_SUPPORTED})
"""Codes of a master that shows its records to nobody, or not to this replica."""

REFUSED: Final = f"[Errno {errno.ECONNREFUSED}]"
"""In the text of an error when nobody listens at a port, at any address of the host."""

UNCOMPARED: Final = "its log cannot be compared with this one"

REMEDY: Final = (
    "the logs are of different pasts, as when the master lost the end of its log with its power;"
    " nothing is copied or acknowledged before an operator has decided: to keep the master's log,"
    " start this replica in an empty directory; to keep this one, promote this replica and empty"
    " the master's directory"
)


EPOCHS_LIE: Final = (
    "the logs are of different pasts, although their epochs are equal: this directory is of another"
    " group, or of an earlier one of this name; nothing is copied or acknowledged: start this"
    " broker in an empty directory, and keep this one if its messages are wanted"
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
        self._has_epochs = settings.config.controller_mode
        self._misses = 0
        """Looks in a row that found no master at the guessed port."""
        self._complaint = ""

    async def check(self, stream: str, stop: int) -> None:
        """Check the master whose stream is at HOST:PORT by the last record in front of `stop`.

        Raises LogDiverged for another log, StreamError when the master is none of this group or
        does not answer now. A master that shows no records is followed all the same, and so is one
        of haMasterAddress whose port for clients nobody knows.
        """
        address = self._role.current.master or self._guess(stream)
        try:
            if await self._is_master(address, stream):
                await self._compare(address, stop)
        except (CallError, FieldError) as error:
            if not isinstance(error, CallRefused) or error.code not in UNSHOWN:
                raise StreamError(f"{UNCOMPARED}: {error}") from error
            self._warn(address, str(error))

    def _guess(self, stream: str) -> str:
        """The address for clients of the master that the settings name. Raises StreamError.

        Where name servers name it, its stream alone may be known for some seconds.
        """
        if self._settings.config.ha_master is None:
            raise StreamError(f"{UNCOMPARED} before a name server has told its address")
        host, port = parse_address(stream, "haMasterAddress")
        return join_address(host, port - STREAM_ABOVE)

    async def _is_master(self, address: str, stream: str) -> bool:
        """Whether the master answers there; False once it is certain that a guess was wrong.

        Raises StreamError, CallError and FieldError as long as that is not known, and for a broker
        of which the stream is and that is not the master of this one.
        """
        is_guess = self._role.current.master is None
        misses, self._misses = (self._misses + 1 if is_guess else 0), 0
        try:
            identity = await MasterTables(self._pool, address).identity()
            fault = self._fault(address, identity)
            _, port = parse_address(stream, "haMasterAddress")
            is_guess = is_guess and identity.stream_port not in {0, port}
        except (CallError, FieldError) as error:
            if not is_guess or not _is_no_broker(error):
                raise
            fault = str(error)
        if fault is None:
            return True
        is_empty = self._store.raw.last_record() is None  # there is nothing to compare
        if not is_guess or (misses < MISSES_MAX and not is_empty):
            self._misses = misses
            raise StreamError(f"{UNCOMPARED}: {fault}")
        self._warn(address, fault)
        return False

    def _fault(self, address: str, identity: MasterIdentity) -> str | None:
        """Why the broker at an address is not the master; None when it is."""
        if fault := identity.fault(self._settings.config, self._role.current.broker_id):
            return fault
        if identity.broker_id != MASTER_ID:
            return f"the broker at {address} is replica {identity.broker_id} of this group"
        return None

    async def _compare(self, address: str, stop: int) -> None:
        """Compare the last record. Raises LogDiverged, CallError."""
        own = self._store.raw.last_record(stop)
        if own is None:
            return
        position, record = own
        there = await self._record(address, position)
        if not there:
            await self._explain(address, position, stop)
        elif there != record:
            self._diverged(
                f"the record at {position}, the last one in common, is another one at {address}"
            )

    async def _record(self, address: str, position: int) -> bytes:
        """The master's record at a position; empty if it has none."""
        try:
            call = ViewMessage(offset=position, unconfirmed=True)
            return (await self._pool.call(address, call, TIMEOUT_MS)).body
        except CallRefused as error:
            if error.code == ResponseCode.SYSTEM_ERROR and NOT_FOUND in (error.remark or ""):
                return b""
            raise

    async def _explain(self, address: str, position: int, stop: int) -> None:
        """Raise LogDiverged with the reason why the master has no record at a position.

        A log that ends where the master's begins can be followed: nothing is there to compare.
        """
        begin, end = await self._bounds(address)
        if stop == begin:
            return
        if position < begin:
            raise LogDiverged(
                f"the master's log begins at {begin}, and this one ends at {stop}: the master"
                " has deleted what is between; start this replica in an empty directory, then it"
                " begins anew"
            )
        if self._has_epochs:
            self._diverged(
                f"the record at {position}, the last one in common, is none at {address}, damaged"
                " there, or not yet confirmed by a broker of an earlier version"
            )
        if end <= position:
            self._diverged(f"the log at {address} ends at {end} already, this one at {stop}")
        self._diverged(
            f"the record at {position}, the last one here, is none at {address}, or damaged there"
        )

    async def _bounds(self, address: str) -> tuple[int, int]:
        """First and last position of the master's log. Raises StreamError when it does not say."""
        try:
            reply = await self._pool.call(address, GetRuntimeInfo(), TIMEOUT_MS)
            table = codec.loads(reply.body, KVTable).table
            return int(table["commitLogMinOffset"]), int(table["commitLogMaxOffset"])
        except (CallError, FieldError, KeyError, ValueError) as error:
            text = f"it lacks the last record here, and does not say where it begins: {error}"
            raise StreamError(f"{UNCOMPARED}: {text}") from error

    def _diverged(self, what: str) -> NoReturn:
        raise LogDiverged(f"{what}: {EPOCHS_LIE if self._has_epochs else REMEDY}")

    def _warn(self, address: str, reason: str) -> None:
        """Log that the logs are not compared; the same reason once."""
        if reason != self._complaint:
            self._complaint = reason
            log.warning(
                "the master's log is copied without a look whether this one is a part of it: its"
                " records cannot be read at %s: %s",
                address, reason,
            )  # fmt: skip


def _is_no_broker(error: CallError | FieldError) -> bool:
    """Whether nobody listens, or something that is no broker.

    A timeout says neither, and a failure of TLS may be a matter of time.
    """
    if isinstance(error, ConnectFailed):
        return REFUSED in str(error.__cause__)
    return isinstance(error, ConnectionLost | FieldError)
