"""Transaction: commits and rolls back half messages, and puts back those that were given up.

An end is mostly one-way: a refusal is only logged, and the next check asks again.
"""

from collections.abc import Awaitable
from typing import Final, NoReturn

from roquet.broker.broker import BrokerComponent
from roquet.broker.control import ControlPlane
from roquet.broker.delivery import DeliveryServices
from roquet.broker.log.message_log import MessageLog
from roquet.broker.operations.safe_replies import SafeReplies
from roquet.broker.operations.sending import SendChecks
from roquet.broker.refusals import system_error
from roquet.broker.services.transactions.half_messages import HalfMessage, IndexBehind
from roquet.log_records import logger
from roquet.model import names
from roquet.model.errors import CallRefused, MessageIllegal, RecordError, StoreError
from roquet.net.router import HandlerReply, Peer
from roquet.rules.transaction import (
    COMMIT,
    ROLL_BACK,
    UNKNOWN,
    HalfMessagePosition,
    TransactionFault,
    is_too_late,
    mismatch,
)
from roquet.wire.call import Reply
from roquet.wire.calls.transaction import EndTransaction, ResumeCheck
from roquet.wire.codes import ResponseCode
from roquet.wire.records.message_id import parse_offset_message_id
from roquet.wire.records.record import Record, decode

log = logger(__name__)

CODES: Final = {TransactionFault.LATE: ResponseCode.ILLEGAL_OPERATION}
"""Codes of faults; all others are SYSTEM_ERROR in the genuine broker, with different remarks."""

PUT_AWAY: Final = frozenset({names.CHECK_MAX_TIME_TOPIC, names.SET_ASIDE_TOPIC})
"""Topics from which single messages are put back."""


class TransactionHandler(BrokerComponent, frozen=True):
    """Commits and rolls back half messages."""

    log: MessageLog
    delivery: DeliveryServices
    control: ControlPlane
    checks: SendChecks
    replies: SafeReplies

    def end(self, call: EndTransaction, peer: Peer) -> HandlerReply:
        """Commit or roll back a half message; each ends only once."""
        if call.commit_or_rollback == UNKNOWN:
            return None  # its producer does not know either: it is checked again
        if call.commit_or_rollback not in (COMMIT, ROLL_BACK):
            raise system_error("commitOrRollback field wrong")
        try:
            self._end(call, peer)
        except IndexBehind:
            return self._end_later(call, peer)
        return self._noted()

    async def _end_later(self, call: EndTransaction, peer: Peer) -> Reply | None:
        await self.delivery.transactions.queue.index()
        self._end(call, peer)
        noted = self._noted()
        return None if noted is None else await noted

    def _noted(self) -> Awaitable[Reply] | None:
        """A wait until the message that was stored is safe; None where nobody waits."""
        noted = self.replies.when_safe(Reply())
        return None if isinstance(noted, Reply) else noted

    def _end(self, call: EndTransaction, peer: Peer) -> None:
        """End the transaction without a pause, so that nothing else ends it meanwhile.

        While too few logs are in sync it stays open, and its producer is asked again later.
        """
        self.checks.check_in_sync()
        half = self._half_message(call, peer)
        transactions = self.delivery.transactions
        try:
            if call.commit_or_rollback == ROLL_BACK:
                transactions.roll_back(half)
            elif self._is_doubtful(call, half) and transactions.queue.was_delivered(half):
                transactions.end(half.offset)
            else:
                transactions.commit(half)
        except MessageIllegal as error:
            raise CallRefused(ResponseCode.MESSAGE_ILLEGAL, str(error)) from error
        except StoreError as error:
            raise CallRefused(ResponseCode.SERVICE_NOT_AVAILABLE, str(error)) from error

    def _half_message(self, call: EndTransaction, peer: Peer) -> HalfMessage:
        """The half message of a call, at its latest place. CallRefused if it cannot be ended."""
        transactions = self.delivery.transactions
        half = transactions.queue.find(call.position)
        if half is None or not half.topic or not names.can_clients_send_to(half.topic):
            _fault(TransactionFault.UNKNOWN, call, peer)
        if half.has_immunity and not call.from_transaction_check:
            now_ms = self.control.clock.now_ms()
            if is_too_late(half.facts, self.control.settings.config.transaction_timeout, now_ms):
                _fault(TransactionFault.LATE, call, peer)
        said = HalfMessagePosition(call.producer_group, call.half_offset, call.position)
        if fault := mismatch(half.place, said):
            _fault(fault, call, peer)
        current = transactions.current(half)
        if current is None:
            _fault(TransactionFault.ENDED, call, peer)
        return current

    def _is_doubtful(self, call: EndTransaction, half: HalfMessage) -> bool:
        """Whether it may have been delivered before; a message that was never checked was not."""
        return (
            call.from_transaction_check
            or half.was_put_back
            or self.delivery.transactions.is_old(half)
        )

    def resume(self, call: ResumeCheck, _peer: Peer) -> HandlerReply:
        """Put back a message: one that was given up is checked again from the beginning.

        A message that a service has set aside goes back to that service.
        """
        self.checks.check_in_sync()
        record = self._put_away(call.msg_id or "")
        is_set_aside = record.topic == names.SET_ASIDE_TOPIC
        work = self.delivery.set_aside.retry if is_set_aside else self.delivery.transactions.resume
        try:
            work(record)
        except (StoreError, MessageIllegal, RecordError, ValueError) as error:
            goal = "its service" if is_set_aside else names.HALF_TOPIC
            raise system_error(f"Put message back to {goal} failed. {error}") from error
        return self._noted()

    def _put_away(self, message_id: str) -> Record:
        """The record of a message that was given up or set aside. CallRefused for any other id."""
        try:
            _, position = parse_offset_message_id(message_id)
        except RecordError as error:
            raise system_error(str(error)) from error
        raw = self.log.store.message_at(position) if position >= 0 else None
        record = decode(raw) if raw is not None else None
        if record is None or record.topic not in PUT_AWAY:
            raise system_error(
                f"{message_id} is no message of {names.CHECK_MAX_TIME_TOPIC}"
                f" or {names.SET_ASIDE_TOPIC}"
            )
        return record


def _fault(fault: TransactionFault, call: EndTransaction, peer: Peer) -> NoReturn:
    log.warning(
        "%s of group %s cannot end the half message at %d: %s",
        peer.address, call.producer_group, call.position, fault.value,
        extra={"client": peer.address, "group": call.producer_group},
    )  # fmt: skip
    raise CallRefused(CODES.get(fault, ResponseCode.SYSTEM_ERROR), fault.value)
