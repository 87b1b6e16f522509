"""TransactionProducer: send in a transaction, answer checks.

    transaction() ── half message ──▶ broker            nobody gets it yet
        the block    your own work: a database, a file
    end of block ─── commit ────────▶ broker            now everybody does
                     roll back, when it raised          nobody ever does
    check(message) ◀─ "what became of it?" ── broker    when no end came, after 6 s and again

Whoever dies between its own work and the commit is asked later, or another producer of its group
is: the check looks at what the work has left behind, and says so.
"""

from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Final, Self, TypeAlias, Unpack

import msgspec

from roquet.client.config import ProducerConfig, Selector, config_or_default
from roquet.client.connection.background import ErrorLogThrottle
from roquet.client.producer import Producer
from roquet.client.reading.request_reply import with_system_properties
from roquet.client.sending.delivery import (
    RETRY_PAUSE_MS,
    MessageDelivery,
    OutgoingBatch,
    is_retryable,
)
from roquet.client.sending.prepare import MessageFields, PreparedMessage, build_message
from roquet.client.transaction_check import (
    TransactionCheck,
    TransactionChecker,
    TransactionState,
    call_user_function,
    to_transaction_state,
)
from roquet.log_records import logger
from roquet.model import properties as names
from roquet.model.errors import CallError, CallRefused, RoquetError, UsageError
from roquet.model.message import Message
from roquet.model.names import AUTO_CREATE_TOPIC, check_topic
from roquet.model.results import SendReceipt
from roquet.wire.calls.transaction import CheckTransactionState, EndTransaction
from roquet.wire.codes import ResponseCode
from roquet.wire.records.message_id import parse_offset_message_id
from roquet.wire.records.property_text import decode_properties

log = logger(__name__)

SEARCH_PAUSE_MS: Final = 1_000
"""Before name servers that could not say which brokers there are are asked again."""

LEFT_TO_CHECKS: Final = frozenset(
    {
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.ILLEGAL_OPERATION,
        ResponseCode.GO_AWAY,
    }
)
"""Refusals of an end after which the broker still has the half message, and will ask."""

_DEFAULTS: Final = ProducerConfig()


LocalTransaction: TypeAlias = Callable[
    ["Transaction"], Awaitable[TransactionState | None] | TransactionState | None
]
"""Does what a message is about. None is UNKNOWN, as in Java."""


class TransactionReceipt(msgspec.Struct, frozen=True):
    """What became of a message sent in a transaction."""

    receipt: SendReceipt
    """Of the half message: its place is not that of the message which consumers get."""
    state: TransactionState


class Transaction:
    """One message whose delivery hangs on how a block ends."""

    def __init__(
        self, producer: "TransactionProducer", prepared: PreparedMessage, timeout_ms: int | None
    ) -> None:
        self._producer = producer
        self.prepared = prepared
        self._timeout_ms = timeout_ms
        self._receipt: SendReceipt | None = None
        self.state = TransactionState.COMMIT
        """What the end of the block will say, or has said."""

    @property
    def message_id(self) -> str:
        """The id that consumers will see, and checks; it is the transaction's id as well."""
        return self.prepared.message_id

    @property
    def topic(self) -> str:
        """Where the message goes."""
        return self.prepared.topic

    @property
    def receipt(self) -> SendReceipt:
        """Where the half message lies."""
        if self._receipt is None:
            raise UsageError("the transaction has not begun: use `async with`")
        return self._receipt

    def rollback(self) -> None:
        """Let nobody get the message, however the block ends."""
        self.state = TransactionState.ROLLBACK

    def unknown(self) -> None:
        """Say nothing at the end, however the block ends: the broker will ask."""
        self.state = TransactionState.UNKNOWN

    async def __aenter__(self) -> Self:
        if self._receipt is not None:
            raise UsageError("a transaction is used once: make a new one")
        self._receipt = await self._producer.begin(self.prepared, self._timeout_ms)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            await self._producer.end(self)
            return
        if self.state is TransactionState.COMMIT:
            self.state = TransactionState.ROLLBACK
        await self._producer.end_quietly(self)


class TransactionProducer(Producer):
    """Sends messages that are delivered only if something else is done as well.

        async def check(message):                       # asked when a commit did not arrive
            known = await database.has(message.key)
            return TransactionState.COMMIT if known else TransactionState.ROLLBACK

        async with TransactionProducer("127.0.0.1:9876", group="shop", check=check) as producer:
            async with producer.transaction("orders", b"...", keys="4711") as tx:
                await database.insert(...)              # raising rolls the message back

    It sends plain messages, too. All producers of a group must give the same answers: brokers ask
    whichever is there. Brokers with automatic topics hear of it at once, others as soon as it sends
    to one of their topics, or with `topics`: so checks that are due from before a restart come.
    """

    def __init__(
        self,
        namesrv: str | Sequence[str] | None = None,
        *,
        group: str,
        check: TransactionCheck,
        topics: Sequence[str] = (),
        config: ProducerConfig | None = None,
    ) -> None:
        if isinstance(topics, str):
            raise UsageError(f"topics are several texts: ({topics!r},)")
        config = config_or_default(_DEFAULTS, config)
        super().__init__(namesrv, group=group, config=config)
        self._topics = [check_topic(topic) for topic in topics]
        self._checking = TransactionChecker(check, self.group)
        # A half message whose fate is not known must not be sent twice: each would be asked about.
        once = msgspec.structs.replace(config, retry_times=0)
        self._once = MessageDelivery(self._session, once, self.group)
        self._session.router.add(CheckTransactionState, self._checking.answer)

    async def start(self) -> None:
        """Open for sends and checks; `async with` does this."""
        await super().start()
        self._once.tolerance, self._once.tracer = self._delivery.tolerance, self._delivery.tracer
        self._checking.tracer = self._tracer
        self._session.membership.is_awaited = lambda: True
        self._session.background.start(self._find_brokers(), "brokers")

    async def close(self) -> None:
        """Leave the group and end the connections; checks under way end, others are asked then."""
        self._checking.close()
        await super().close()

    def transaction(
        self,
        message: Message | str,
        body: bytes | None = None,
        *,
        selector: Selector | None = None,
        timeout_ms: int | None = None,
        **fields: Unpack[MessageFields],
    ) -> Transaction:
        """A message that is committed at the normal end of a block, rolled back when it raises.

        An `async with` sends the half message when it begins; raising there, it was not stored or
        is rolled back. At the end a commit that cannot be told is left to the check.
        """
        if not isinstance(message, Message | str):
            raise UsageError("a transaction has one message: batches cannot be in one")
        whole = build_message(message, body, fields)
        if whole.delay_level or whole.delay or whole.deliver_at:
            raise UsageError(
                "a message of a transaction cannot be delayed: Apache RocketMQ would lose it"
            )
        marks = {names.TRANSACTION_PREPARED: "true", names.PRODUCER_GROUP: self.group}
        prepared = with_system_properties(self._prepare(whole, selector), marks)
        return Transaction(self, prepared, timeout_ms)

    async def send_in_transaction(
        self,
        message: Message | str,
        body: bytes | None = None,
        *,
        local: LocalTransaction,
        timeout_ms: int | None = None,
        **fields: Unpack[MessageFields],
    ) -> TransactionReceipt:
        """The same as one call, as in Java: `local` does the work and says what became of it.

        A plain `def` is called in a thread. Raising rolls back, and is raised here.
        """
        if not callable(local):
            raise UsageError(f"local is a function, not {type(local).__name__}")
        transaction = self.transaction(message, body, timeout_ms=timeout_ms, **fields)
        async with transaction as tx:
            tx.state = to_transaction_state(await call_user_function(local, tx), tx.message_id)
        return TransactionReceipt(transaction.receipt, transaction.state)

    # -- begin and end -----------------------------------------------------------------------

    async def begin(self, prepared: PreparedMessage, timeout_ms: int | None) -> SendReceipt:
        """Have a half message stored, as durably as its broker promises."""
        with self._delivery.outstanding.current:
            receipt = await self._send_half(prepared, self._delivery.deadline_ms(timeout_ms))
        parse_offset_message_id(receipt.offset_message_id)  # or else it could never be ended
        await self._session.membership.introduce(prepared.topic)
        if not receipt.ok:
            await self._tell_quietly(receipt, prepared, TransactionState.ROLLBACK)
            raise CallError(
                f"the transaction was rolled back: its message is stored at {receipt.queue}, but "
                f"not as durably as it should be ({receipt.status.value})",
                definite=True,
            )
        return receipt

    async def _send_half(self, prepared: PreparedMessage, deadline_ms: int) -> SendReceipt:
        outgoing, clock = OutgoingBatch((prepared,), prepared), self._config.clock
        pause_ms = RETRY_PAUSE_MS
        for left in range(self._config.retry_times, -1, -1):
            try:
                return (await self._once.send(outgoing, deadline_ms, None, self._turn))[0]
            except CallError as error:
                is_last = not left or deadline_ms <= clock.monotonic_ms()
                if is_last or not error.definite or not is_retryable(error):
                    raise
            await clock.sleep(pause_ms)
            pause_ms *= 2
        raise AssertionError("the last try returns or raises")

    async def end(self, transaction: Transaction) -> None:
        """Tell the broker how a block ended; CallRefused when the message cannot be delivered."""
        if transaction.state is TransactionState.UNKNOWN:
            return
        receipt = transaction.receipt
        call = self._end_call(receipt, transaction.prepared, transaction.state)
        try:
            address = self._session.routes.leader(receipt.queue.broker_name)
            with self._delivery.outstanding.current:
                await self._session.pool.call(address, call, self._config.timeout_ms)
        except CallError as error:
            if isinstance(error, CallRefused) and error.code not in LEFT_TO_CHECKS:
                raise
            log.warning(
                "%s of message %s was not heard, the broker will ask: %s",
                transaction.state.name, receipt.message_id, error,
            )  # fmt: skip

    async def end_quietly(self, transaction: Transaction) -> None:
        """The same without waiting for the answer: another error is on its way."""
        if transaction.state is not TransactionState.UNKNOWN:
            await self._tell_quietly(transaction.receipt, transaction.prepared, transaction.state)

    async def _tell_quietly(
        self, receipt: SendReceipt, prepared: PreparedMessage, state: TransactionState
    ) -> None:
        try:
            address = self._session.routes.leader(receipt.queue.broker_name)
            await self._session.pool.oneway(address, self._end_call(receipt, prepared, state))
        except CallError as error:
            log.warning(
                "%s of message %s was not sent, the broker will ask: %s",
                state.name, receipt.message_id, error,
            )  # fmt: skip

    def _end_call(
        self, receipt: SendReceipt, prepared: PreparedMessage, state: TransactionState
    ) -> EndTransaction:
        _, position = parse_offset_message_id(receipt.offset_message_id)
        call = EndTransaction(
            topic=prepared.topic,
            producer_group=self.group,
            half_offset=receipt.queue_offset,
            position=position,
            commit_or_rollback=state.value,
            msg_id=receipt.message_id,
            transaction_id=receipt.message_id,
            broker_name=receipt.queue.broker_name,
        )
        if self._tracer is not None:
            text = prepared.properties.encode("utf-8", "surrogatepass")
            self._tracer.transaction_ended(call, decode_properties(text))
        return call

    async def _find_brokers(self) -> None:
        """Learn of the brokers, so that they learn of us before anything is sent.

        While a broker is down nobody knows its topics: they are asked for until it is back.
        """
        config, routes, trouble = self._config, self._session.routes, ErrorLogThrottle("routes")
        missing = [*self._topics, AUTO_CREATE_TOPIC]
        while missing and (missing != [AUTO_CREATE_TOPIC] or not routes.brokers):
            pause_ms = config.route_period_ms
            try:
                for topic in tuple(missing):
                    if await routes.refresh(topic) is not None:
                        missing.remove(topic)
            except RoquetError as error:
                trouble.tell(error)
                pause_ms = SEARCH_PAUSE_MS
            if missing:
                await config.clock.sleep(pause_ms)
