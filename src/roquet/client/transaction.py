"""TransactionProducer: sends half messages, ends transactions and answers checks.

    transaction() ── half message ──▶ broker            invisible to consumers
        the block    your own work: a database, a file
    end of block ─── commit ────────▶ broker            visible to consumers
                     roll back, when it raised          never delivered
    check(message) ◀─ "what became of it?" ── broker    when no end came, after 6 s and again

When a producer dies between its own work and the commit, the broker later asks it, or another
producer of its group. The check looks up whether the work was done and answers.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final, Self, TypeAlias, Unpack, overload

import msgspec

from roquet.client.arguments import check_function
from roquet.client.config import ProducerConfig, Selector, config_or_default
from roquet.client.connection.background import ErrorLogThrottle
from roquet.client.producer import Producer
from roquet.client.reading.request_reply import with_system_properties
from roquet.client.sending.delivery import RETRY_PAUSE_MS, RETRY_PAUSE_MS_MAX, MessageDelivery
from roquet.client.sending.outgoing import OutgoingBatch, send_in_span, with_create_span
from roquet.client.sending.prepare import MessageFields, PreparedMessage, build_message
from roquet.client.sending.send_contexts import send_within
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
from roquet.model.message import Message, V
from roquet.model.names import AUTO_CREATE_TOPIC, check_topic
from roquet.model.results import SendReceipt
from roquet.rules.backoff import backoff_ms
from roquet.rules.send_retry import NOT_DONE, is_retryable
from roquet.wire.calls.transaction import CheckTransactionState, EndTransaction
from roquet.wire.codes import ResponseCode
from roquet.wire.records.message_id import parse_offset_message_id
from roquet.wire.records.property_text import decode_properties

log = logger(__name__)

SEARCH_PAUSE_MS: Final = 1_000
"""Pause after name servers could not be asked for the brokers."""

LEFT_TO_CHECKS: Final = NOT_DONE | {ResponseCode.ILLEGAL_OPERATION}
"""Refusals of an end after which the broker still has the half message and will ask about it."""


LocalTransaction: TypeAlias = Callable[
    ["Transaction"], Awaitable[TransactionState | None] | TransactionState | None
]
"""Does the local work of a transaction. None is UNKNOWN, as in Java."""


class TransactionReceipt(msgspec.Struct, frozen=True):
    """Result of a message sent in a transaction."""

    receipt: SendReceipt
    """Receipt of the half message; the message that consumers get has another offset."""
    state: TransactionState


class Transaction:
    """One message whose delivery depends on how a block ends."""

    def __init__(
        self,
        producer: "TransactionProducer[Any]",
        prepared: PreparedMessage,
        timeout_ms: int | None,
    ) -> None:
        self._producer = producer
        self._prepared = prepared
        self._timeout_ms = timeout_ms
        self._receipt: SendReceipt | None = None
        self.state = TransactionState.COMMIT
        """The state that the end of the block tells the broker."""

    @property
    def message_id(self) -> str:
        """The id that consumers and checks see; also the id of the transaction."""
        return self._prepared.message_id

    @property
    def topic(self) -> str:
        """The message's topic."""
        return self._prepared.topic

    @property
    def receipt(self) -> SendReceipt:
        """Receipt of the half message. Raises UsageError before the block begins."""
        if self._receipt is None:
            raise UsageError("the transaction has not begun: use `async with`")
        return self._receipt

    def rollback(self) -> None:
        """Roll the message back, however the block ends."""
        self.state = TransactionState.ROLLBACK

    def unknown(self) -> None:
        """Leave the transaction open, however the block ends: the broker will ask."""
        self.state = TransactionState.UNKNOWN

    async def __aenter__(self) -> Self:
        if self._receipt is not None:
            raise UsageError("a transaction is used once: make a new one")
        self._receipt = await self._producer._begin(self._prepared, self._timeout_ms)
        return self

    async def __aexit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if error is None:
            await self._producer._end(self)
            return
        if self.state is TransactionState.COMMIT:
            self.state = TransactionState.ROLLBACK
        await self._producer._end_quietly(self)


class TransactionProducer(Producer[V]):
    """Sends messages that are delivered only if local work succeeds as well.

        async def check(message):                       # asked when a commit did not arrive
            known = await database.has(message.key)
            return TransactionState.COMMIT if known else TransactionState.ROLLBACK

        async with TransactionProducer("127.0.0.1:9876", group="shop", check=check) as producer:
            async with producer.transaction("orders", b"...", keys="4711") as tx:
                await database.insert(...)              # raising rolls the message back

    It sends plain messages as well. All producers of a group must give the same answers, since
    brokers ask any of them. Brokers with automatic topics learn of the producer at its start;
    others when it first sends to one of their topics, or at the start if `topics` names them. They
    then ask about transactions from before a restart.
    """

    def __init__(
        self,
        namesrv: str | Sequence[str] | None = None,
        *,
        group: str,
        check: TransactionCheck,
        topics: Sequence[str] = (),
        config: ProducerConfig | None = None,
        encode: Callable[[V], bytes] | None = None,
    ) -> None:
        if isinstance(topics, str):
            raise UsageError(f"topics are a tuple of str: ({topics!r},)")
        config = config_or_default(ProducerConfig, config)
        super().__init__(namesrv, group=group, config=config, encode=encode)
        self._topics = [check_topic(topic) for topic in topics]
        self._checking = TransactionChecker(check, self.group)
        # A half message with an unknown outcome must not be sent twice: the broker would ask about
        # both.
        once = msgspec.structs.replace(config, retry_times=0, metrics=None)
        self._once = MessageDelivery(self._session, once, self.group)
        self._session.router.add(CheckTransactionState, self._checking.answer)

    async def start(self) -> None:
        """Open connections for sends and checks; `async with` does this."""
        await super().start()
        self._once.tolerance = self._delivery.tolerance
        self._once.on_stored = self._delivery.on_stored
        self._checking.tracer, self._checking.spans = self._tracer, self._session.spans
        self._session.membership.is_awaited = lambda: True
        self._session.background.start(self._find_brokers(), "brokers")

    async def close(self) -> None:
        """Leave the group and close the connections; running checks are cancelled."""
        self._checking.close()
        await super().close()

    @overload
    def transaction(
        self,
        message: Message[V],
        *,
        selector: Selector | None = None,
        timeout_ms: int | None = None,
    ) -> Transaction: ...
    @overload
    def transaction(
        self,
        topic: str,
        /,
        body: V,
        *,
        selector: Selector | None = None,
        timeout_ms: int | None = None,
        **fields: Unpack[MessageFields],
    ) -> Transaction: ...
    def transaction(
        self,
        message: Message[V] | str,
        body: V | None = None,
        *,
        selector: Selector | None = None,
        timeout_ms: int | None = None,
        **fields: Unpack[MessageFields],
    ) -> Transaction:
        """Prepare a message that commits when a block ends normally, and rolls back when it raises.

        `async with` sends the half message at its start; when that raises, the message was not
        stored or is rolled back. When the end cannot be told to the broker, the check decides.
        """
        if not isinstance(message, Message | str):
            raise UsageError("a transaction has one message: batches cannot be in one")
        whole_message = build_message(message, body, fields)
        if whole_message.priority is not None:
            raise UsageError("a message of a transaction has no priority: brokers would drop it")
        if whole_message.delay_level or whole_message.delay or whole_message.deliver_at:
            raise UsageError(
                "a message of a transaction cannot be delayed: Apache RocketMQ would lose it"
            )
        properties = {names.TRANSACTION_PREPARED: "true", names.PRODUCER_GROUP: self.group}
        prepared = with_system_properties(self._prepare(whole_message, selector), properties)
        if (spans := self._session.spans) is not None:
            prepared = with_create_span(spans, prepared)
        return Transaction(self, prepared, timeout_ms)

    @overload
    async def send_in_transaction(
        self, message: Message[V], *, local: LocalTransaction, timeout_ms: int | None = None
    ) -> TransactionReceipt: ...
    @overload
    async def send_in_transaction(
        self,
        topic: str,
        /,
        body: V,
        *,
        local: LocalTransaction,
        timeout_ms: int | None = None,
        **fields: Unpack[MessageFields],
    ) -> TransactionReceipt: ...
    async def send_in_transaction(
        self,
        message: Message[V] | str,
        body: V | None = None,
        *,
        local: LocalTransaction,
        timeout_ms: int | None = None,
        **fields: Unpack[MessageFields],
    ) -> TransactionReceipt:
        """Send a message in a transaction in one call: `local` does the work and returns the state.

        A plain `def` is called in a thread. An exception rolls back and is raised here.
        """
        check_function(local, "local", "the transaction")
        transaction = self.transaction(build_message(message, body, fields), timeout_ms=timeout_ms)
        async with transaction as tx:
            tx.state = to_transaction_state(await call_user_function(local, tx), tx.message_id)
        return TransactionReceipt(transaction.receipt, transaction.state)

    # -- begin and end -----------------------------------------------------------------------

    async def _begin(self, prepared: PreparedMessage, timeout_ms: int | None) -> SendReceipt:
        """Store a half message as durably as its broker promises, or raise."""
        with self._delivery.outstanding.current:
            deadline_ms = self._delivery.deadline_ms(timeout_ms)
            half = OutgoingBatch((prepared,), prepared)
            (receipt,) = await send_within(
                self._config.around,
                prepared.message,
                lambda: send_in_span(
                    self._session.spans,
                    half,
                    lambda half: self._delivery.count(half, self._send_half(half, deadline_ms)),
                ),
            )
        parse_offset_message_id(receipt.offset_message_id)  # raises if it has no position
        await self._session.membership.ensure_known(prepared.topic)
        if not receipt.ok:
            await self._send_end_oneway(receipt, prepared, TransactionState.ROLLBACK)
            raise CallError(
                f"the transaction was rolled back: its message is stored at {receipt.queue}, but "
                f"not as durably as it should be ({receipt.status.value})",
                definite=True,
            )
        return receipt

    async def _send_half(self, half: OutgoingBatch, deadline_ms: int) -> Sequence[SendReceipt]:
        clock = self._config.clock
        pauses_ms = backoff_ms(RETRY_PAUSE_MS, RETRY_PAUSE_MS_MAX)
        retry_times = left_tries = self._config.retry_times
        while True:
            try:
                return await self._once.send(half, deadline_ms, None, self._turn)
            except CallError as error:
                left_ms = deadline_ms - clock.monotonic_ms()
                is_failover = self._delivery.may_get_new_master(half.topic, error)
                is_last = left_ms <= 0 or not (left_tries or is_failover)
                if is_last or not error.definite or not is_retryable(error):
                    raise
                pause_ms = next(pauses_ms)
                if not is_failover:
                    left_tries -= 1
                    attempt = retry_times - left_tries
                    chosen_ms = self._delivery.chosen_pauses.pause_ms(attempt, error)
                    pause_ms = pause_ms if chosen_ms is None else chosen_ms
            if is_failover:
                await self._delivery.refresh_route(half.topic, left_ms)
            left_ms = max(deadline_ms - clock.monotonic_ms(), 0)
            await clock.sleep(min(pause_ms, left_ms))

    async def _end(self, transaction: Transaction) -> None:
        """Tell the broker a transaction's state; CallRefused if the message cannot be delivered."""
        if transaction.state is TransactionState.UNKNOWN:
            return
        receipt = transaction.receipt
        call = self._end_call(receipt, transaction._prepared, transaction.state)
        try:
            address = self._session.routes.leader(receipt.queue.broker_name)
            with (
                self._delivery.outstanding.current,
                self._end_span(receipt, transaction._prepared, transaction.state),
            ):
                await self._session.pool.call(address, call, self._config.timeout_ms)
        except CallError as error:
            if isinstance(error, CallRefused) and error.code not in LEFT_TO_CHECKS:
                raise
            log.warning(
                "%s of message %s got no answer, the broker will ask: %s",
                transaction.state.name, receipt.message_id, error,
            )  # fmt: skip

    async def _end_quietly(self, transaction: Transaction) -> None:
        """Tell the broker the state without waiting for an answer, as another error is raised."""
        if transaction.state is not TransactionState.UNKNOWN:
            await self._send_end_oneway(
                transaction.receipt, transaction._prepared, transaction.state
            )

    async def _send_end_oneway(
        self, receipt: SendReceipt, prepared: PreparedMessage, state: TransactionState
    ) -> None:
        try:
            address = self._session.routes.leader(receipt.queue.broker_name)
            with self._end_span(receipt, prepared, state):
                await self._session.pool.oneway(address, self._end_call(receipt, prepared, state))
        except CallError as error:
            log.warning(
                "%s of message %s was not sent, the broker will ask: %s",
                state.name, receipt.message_id, error,
            )  # fmt: skip

    def _end_span(
        self, receipt: SendReceipt, prepared: PreparedMessage, state: TransactionState
    ) -> AbstractContextManager[object]:
        if (spans := self._session.spans) is None:
            return nullcontext()
        name = state.name.lower()
        return spans.end_transaction(name, prepared.topic, prepared.properties, receipt)

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
        """Find the brokers, so that they know this producer before it sends anything.

        While a broker is down, no name server knows its topics; they are asked again until it is
        back.
        """
        config, routes, throttle = self._config, self._session.routes, ErrorLogThrottle("routes")
        missing = [*self._topics, AUTO_CREATE_TOPIC]
        while missing and (missing != [AUTO_CREATE_TOPIC] or not routes.brokers):
            pause_ms = config.route_period_ms
            try:
                for topic in tuple(missing):
                    if await routes.refresh(topic) is not None:
                        missing.remove(topic)
            except RoquetError as error:
                throttle.report(error)
                pause_ms = SEARCH_PAUSE_MS
            if missing:
                await config.clock.sleep(pause_ms)
