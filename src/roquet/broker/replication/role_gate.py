"""RoleGate: requests that a replica refuses, by code, with the answers of Apache's replicas.

    send, batch, send back   2   busy: the client tries another broker
    end, recall              11  replicas do not store messages
    changes of tables        1   the next copy of the master's tables would undo them
    pull                     2   unless slaveReadEnable, or while it acts as master

A new master refuses the same until its queues are built, except for pulls: these it holds, as it
does questions about progress and the ends of queues. A broker that does not know its role yet holds
the latter.

A replica whose log is known not to be a part of its master's serves no pull: its messages may be
others than the master's at the same offsets. It sends the reader to the master, if there is one.

A refused code gets another handler, so that requests to a master pay nothing. Apache's replicas
carry out changes of tables, which the next copy then undoes. Source: Apache RocketMQ 5.5.0.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any, Final, NoReturn

from roquet.broker.replication.fixed_roles import ActingMaster
from roquet.broker.replication.role import Role, RoleCell
from roquet.broker.replication.stream.stream_client import StreamClient
from roquet.broker.settings.runtime_settings import RuntimeSettings
from roquet.model.errors import CallRefused
from roquet.model.topic import MASTER_ID
from roquet.net.router import Peer, RequestHandler, Router
from roquet.wire.call import Call, Reply
from roquet.wire.calls.pull import Pull, PullReply
from roquet.wire.codes import RequestCode, ResponseCode

BUSY: Final = "[REJECTREQUEST]system busy, start flow control for a while"
"""Remark of Apache's replicas."""

NO_RESET: Final = "Can not reset offset in slave broker"
"""Remark of Apache's replicas."""

FENCED: Final = (
    "this broker takes no messages for now: no controller has granted or prolonged its lease; its "
    "log says why"
)
"""Remark to any request for a master alone, while a broker waits for its controller."""

NO_STORE: Final = "this broker is a replica and stores no message of its own: ask the master"

NO_CHANGE: Final = (
    "this broker is a replica, whose tables are copies of its master's: change them at the master"
)

DIVERGED: Final = "this replica has another past than its master (its log says which): read there"
"""Remark to who reads from a replica whose messages may be others than its master's."""

_BUSY: Final = (ResponseCode.SYSTEM_BUSY, BUSY)
_NOT_AVAILABLE: Final = (ResponseCode.SLAVE_NOT_AVAILABLE, NO_STORE)
_NO_STORE: Final = (ResponseCode.SYSTEM_ERROR, NO_STORE)
_NO_CHANGE: Final = (ResponseCode.SYSTEM_ERROR, NO_CHANGE)

REFUSED: Final[Mapping[RequestCode, tuple[ResponseCode, str]]] = MappingProxyType(
    {
        RequestCode.SEND_MESSAGE: _BUSY,
        RequestCode.SEND_MESSAGE_V2: _BUSY,
        RequestCode.SEND_BATCH_MESSAGE: _BUSY,
        RequestCode.CONSUMER_SEND_MSG_BACK: _BUSY,
        RequestCode.END_TRANSACTION: _NOT_AVAILABLE,
        RequestCode.RECALL_MESSAGE: _NOT_AVAILABLE,
        RequestCode.POP_MESSAGE: _NO_STORE,
        RequestCode.ACK_MESSAGE: _NO_STORE,
        RequestCode.BATCH_ACK_MESSAGE: _NO_STORE,
        RequestCode.CHANGE_MESSAGE_INVISIBLETIME: _NO_STORE,
        RequestCode.RESUME_CHECK_HALF_MESSAGE: _NO_STORE,
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: (ResponseCode.SYSTEM_ERROR, NO_RESET),
        RequestCode.UPDATE_AND_CREATE_TOPIC: _NO_CHANGE,
        RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: _NO_CHANGE,
        RequestCode.DELETE_TOPIC_IN_BROKER: _NO_CHANGE,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: _NO_CHANGE,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: _NO_CHANGE,
        RequestCode.DELETE_SUBSCRIPTIONGROUP: _NO_CHANGE,
        RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: _NO_CHANGE,
        RequestCode.CLONE_GROUP_OFFSET: _NO_CHANGE,
        RequestCode.SET_MESSAGE_REQUEST_MODE: _NO_CHANGE,
    }
)
"""Code and remark of the answer to requests that are for a master alone."""

READS: Final = (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)
"""Requests that a replica serves only with `slave_read_enable`, or while it acts as master, and
never after its log has turned out not to be a part of its master's."""

QUEUE_ENDS: Final = (
    RequestCode.GET_MAX_OFFSET,
    RequestCode.GET_MIN_OFFSET,
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
    RequestCode.GET_EARLIEST_MSG_STORETIME,
    RequestCode.GET_TOPIC_STATS_INFO,
    RequestCode.GET_CONSUME_STATS,
    RequestCode.QUERY_CONSUME_TIME_SPAN,
)
"""Requests about the ends of queues, which nobody is told before they are those of the role."""

PROGRESS: Final = RequestCode.QUERY_CONSUMER_OFFSET
"""A request that is held, but never refused: Java clients of 4.x and C++ clients take any refusal
for a group without progress, which begins at the end of the queue."""

HELD_MS_MAX: Final = 10_000
"""Longest hold of a request in ms: who asks for ends or progress waits for 5 s at most."""


class RoleGate:
    """Refuses requests while this broker is no active master."""

    def __init__(
        self,
        router: Router,
        settings: RuntimeSettings,
        role: RoleCell,
        acting: ActingMaster,
        stream: StreamClient,
    ) -> None:
        self._router = router
        self._acting = acting
        self._stream = stream
        self._settings = settings
        self._role = role
        self._is_open = True
        self._settled = asyncio.Event()
        self.open_or_close()

    def open_or_close(self) -> None:
        """Take requests if this broker is an active master, and refuse them otherwise.

        A broker that becomes a replica refuses at once. One that becomes the master calls this when
        it is ready.
        """
        self._is_open = self._role.current.is_active
        for code, (answer, remark) in REFUSED.items():
            self._refuse(code, answer, remark, is_refused=not self._is_open)
        self.refuse_reads()

    def release(self) -> None:
        """Hold nobody any more: the broker stops."""
        self._settled.set()

    def follow_role(self, *_: Role) -> None:
        """Close at once for a replica; who becomes the master calls `open_or_close`."""
        if self._role.current.is_active:
            self.refuse_reads()
        else:
            self.open_or_close()

    def _refuse(
        self, code: RequestCode, answer: ResponseCode, remark: str, *, is_refused: bool
    ) -> None:
        if self._role.current.is_fenced and self._settings.config.controller_mode:
            remark = FENCED
        self._router.override(code, _refusal(answer, remark) if is_refused else None)

    def refuse_reads(self, *_: object) -> None:
        """Refuse, hold or serve reads, by the role, the settings and the state of the log."""
        is_settled = self._role.is_settled
        is_new_master = self._role.current.is_master and not is_settled
        may_read = (
            self._is_open or self._acting.is_acting or self._settings.config.slave_read_enable
        )
        for code in READS:
            if is_new_master:
                self._router.override(code, self._hold(code))
            else:
                self._refuse(code, *_BUSY, is_refused=not may_read)
                if self._stream.has_diverged and may_read and not self._is_open:
                    self._router.override(code, self._send_to_master)
        for code in QUEUE_ENDS:
            self._router.override(code, None if is_settled else self._hold(code))
        self._router.override(PROGRESS, self._hold(PROGRESS) if is_new_master else None)
        if is_settled:
            self._settled.set()
        else:
            self._settled.clear()

    def _hold(self, code: RequestCode) -> RequestHandler[Any]:
        """A handler that serves requests once this broker is a master whose queues are built.

        A Java client whose pull is refused comes back after 3 s, and one whose question about the
        end of a queue is refused after up to 20 s.
        """

        async def hold(call: Call[Any], peer: Peer) -> Reply | None:
            with suppress(TimeoutError):
                async with asyncio.timeout(HELD_MS_MAX / 1000):
                    await self._settled.wait()
            if not self._is_open and code != PROGRESS:
                raise CallRefused(*_BUSY)
            answer = self._router.own_handler(code)(call, peer)
            return answer if isinstance(answer, Reply) or answer is None else await answer

        return hold

    def _send_to_master(self, call: Pull, _peer: Peer) -> PullReply:
        """Send a reader to the master; refuse it while none is known.

        A Java client that is refused would ask the same replica again, for ever.
        """
        if self._role.current.master is None:
            raise CallRefused(ResponseCode.SYSTEM_BUSY, DIVERGED)
        return PullReply(
            code=ResponseCode.PULL_RETRY_IMMEDIATELY,
            remark=DIVERGED,
            suggest_which_broker_id=MASTER_ID,
            next_begin_offset=call.queue_offset,
            min_offset=call.queue_offset,
            max_offset=call.queue_offset,
        )


def _refusal(code: ResponseCode, remark: str) -> RequestHandler[Any]:
    def refuse(_call: Call[Any], _peer: Peer) -> NoReturn:
        raise CallRefused(code, remark)

    return refuse
