"""Request-reply: requests that wait for a reply, and the replies of consumers.

A reply goes to the broker that has the request, which pushes it to the waiting client. It is in no
topic to be read later: a client that is not connected when the reply comes does not get it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final
from uuid import UUID

import msgspec

from roquet.client.config import ClientConfig, ProducerConfig
from roquet.client.connection.session import Session
from roquet.client.sending.prepare import MessagePreparer, PreparedMessage
from roquet.log_records import logger
from roquet.model import properties as names
from roquet.model.errors import (
    CallRefused,
    CallTimeout,
    ConnectFailed,
    MessageIllegal,
    RecordError,
    UsageError,
)
from roquet.model.message import Message
from roquet.model.names import reply_topic
from roquet.model.results import ReplyMessage
from roquet.net.router import Peer
from roquet.wire.calls.reply import PushReply, SendReplyMessage
from roquet.wire.codes import ResponseCode
from roquet.wire.records.compression import decompress, is_compressed
from roquet.wire.records.property_text import decode_properties

if TYPE_CHECKING:
    from roquet.client.reading.message import InboundMessage

log = logger(__name__)

REPLY: Final = "reply"
"""Message type of a reply."""

PUSH_FAILED: Final = "push reply message"
"""Start of a broker's remark when it could not push a reply to the requester."""

REPLY_PAUSES_MS: Final = (100, 200)
"""Pauses before a reply is sent again: the requester may just be connecting again."""

SendFunction = Callable[[PreparedMessage], Awaitable[object]]
"""Sends a request; returns when a broker has stored it."""


class PendingRequests:
    """One producer's requests that wait for a reply."""

    def __init__(self, session: Session, config: ClientConfig) -> None:
        self._session = session
        self._config = config
        self._waiting: dict[str, asyncio.Future[ReplyMessage]] = {}
        session.router.add(PushReply, self._take)

    def __len__(self) -> int:
        return len(self._waiting)

    async def ask(
        self, prepared: PreparedMessage, timeout_ms: int, send: SendFunction
    ) -> ReplyMessage:
        """Send a request and wait for its reply, both within the timeout."""
        clock = self._config.clock
        deadline_ms = clock.monotonic_ms() + timeout_ms
        correlation_id = str(UUID(int=self._config.rng.getrandbits(128), version=4))
        request = self._request(prepared, correlation_id, timeout_ms)
        answer: asyncio.Future[ReplyMessage] = asyncio.get_running_loop().create_future()
        self._waiting[correlation_id] = answer
        try:
            await self._session.membership.ensure_known(prepared.topic)
            await send(request)
            async with asyncio.timeout(max(deadline_ms - clock.monotonic_ms(), 0) / 1000):
                return await answer
        except TimeoutError as error:
            raise CallTimeout(
                f"the request to {prepared.topic} was stored, "
                f"but no reply came within {timeout_ms} ms"
            ) from error
        finally:
            self._waiting.pop(correlation_id, None)

    def close(self) -> None:
        """Fail all requests: no reply can come any more."""
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(ConnectFailed("the producer was closed: no reply can come"))

    def _request(
        self, prepared: PreparedMessage, correlation_id: str, timeout_ms: int
    ) -> PreparedMessage:
        return with_system_properties(
            prepared,
            {
                names.CORRELATION_ID: correlation_id,
                names.REPLY_TO_CLIENT: self._session.identity.client_id,
                names.TTL: str(timeout_ms),
            },
        )

    def _take(self, call: PushReply, _peer: Peer) -> None:
        """Handle a reply that a broker pushes."""
        properties = decode_properties(call.properties.encode("utf-8", "surrogatepass"))
        answer = self._waiting.get(properties.get(names.CORRELATION_ID, ""))
        if answer is None or answer.done():
            log.debug(
                "a reply to %s from %s came too late, or twice: dropped",
                properties.get(names.CORRELATION_ID), call.born_host,
            )  # fmt: skip
            return
        try:
            answer.set_result(_reply_of(call, properties))
        except RecordError as error:
            answer.set_exception(error)
            raise CallRefused(
                ResponseCode.SYSTEM_ERROR, f"process reply message fail: {error}"
            ) from error


class ReplySender:
    """Sends one consumer's replies."""

    def __init__(self, session: Session, config: ClientConfig, group: str) -> None:
        self._session = session
        self._config = config
        self._group = group
        self._sending = ProducerConfig()
        self._preparer = MessagePreparer(session.identity.keys, self._sending)

    async def reply(
        self, message: "InboundMessage", body: bytes, properties: Mapping[str, str]
    ) -> bool:
        """Reply to a request; whether the requester has got the reply."""
        call = self._call(message, body, properties)
        pauses_ms = list(REPLY_PAUSES_MS)
        while True:
            try:
                await self._session.call(message.broker_name, call)
            except CallRefused as error:
                if not (error.remark or "").startswith(PUSH_FAILED):
                    raise
                if not pauses_ms:
                    log.debug("the reply to %r did not reach its requester: %s", message, error)
                    return False
                await self._config.clock.sleep(pauses_ms.pop(0))
            else:
                return True

    def _call(
        self, message: "InboundMessage", body: bytes, properties: Mapping[str, str]
    ) -> SendReplyMessage:
        request = message.properties
        cluster = request.get(names.CLUSTER)
        if not message.wants_reply or not cluster:
            raise UsageError(f"{message!r} is not a request: no producer waits for a reply")
        now_ms = self._config.clock.now_ms()
        plain = Message(reply_topic(cluster), body, properties=properties)
        repeated = (names.CORRELATION_ID, names.REPLY_TO_CLIENT, names.TTL)
        prepared = with_system_properties(
            self._preparer.prepare(plain, now_ms),
            {
                names.MESSAGE_TYPE: REPLY,
                **{name: request[name] for name in repeated if name in request},
            },
        )
        compressed, sys_flag = prepared.compressed(self._sending)
        return SendReplyMessage(
            body=compressed,
            producer_group=self._group,
            topic=prepared.topic,
            queue_id=0,
            sys_flag=sys_flag,
            born_timestamp=now_ms,
            properties=prepared.properties,
        )


def with_system_properties(prepared: PreparedMessage, system: Mapping[str, str]) -> PreparedMessage:
    """A copy with system properties added, which users may not set themselves."""
    text = prepared.properties + "".join(
        [f"{name}\x01{value}\x02" for name, value in system.items()]
    )
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > names.PROPERTIES_SIZE_MAX:
        raise MessageIllegal(
            f"properties of {size} bytes are over the limit of {names.PROPERTIES_SIZE_MAX}"
        )
    return msgspec.structs.replace(prepared, properties=text, is_unbatchable=True)


def _reply_of(call: PushReply, properties: Mapping[str, str]) -> ReplyMessage:
    compressed = is_compressed(call.sys_flag)
    return ReplyMessage(
        body=decompress(call.body, call.sys_flag) if compressed else call.body,
        properties=properties,
        topic=call.topic,
        flag=call.flag,
        born_ms=call.born_timestamp,
        born_host=call.born_host,
    )
