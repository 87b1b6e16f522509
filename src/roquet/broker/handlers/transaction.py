"""End transaction; put back what was given up.

An end mostly comes one way: what is refused here is known to the log alone, and to the next check.
"""

from typing import Final, NoReturn

from roquet.broker.control import ControlPlane
from roquet.broker.delivery import DeliveryServices
from roquet.broker.log.message_log import MessageLog
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
from roquet.wire.calls.transaction import EndTransaction, ResumeCheck
from roquet.wire.codes import ResponseCode
from roquet.wire.records.message_id import parse_offset_message_id
from roquet.wire.records.record import Record, decode

log = logger(__name__)

CODES: Final = {TransactionFault.LATE: ResponseCode.ILLEGAL_OPERATION}
"""Of all others the genuine broker says 1, and only the remark tells them apart."""

PUT_AWAY: Final = frozenset({names.CHECK_MAX_TIME_TOPIC, names.SET_ASIDE_TOPIC})
"""Topics from which messages are put back, one by one."""


def end(
    delivery: DeliveryServices, control: ControlPlane, call: EndTransaction, peer: Peer
) -> HandlerReply:
    """Delivers a half message, or sees that nobody gets it; each only once."""
    if call.commit_or_rollback == UNKNOWN:
        return None  # its producer does not know either: it is asked again
    if call.commit_or_rollback not in (COMMIT, ROLL_BACK):
        _refuse(ResponseCode.SYSTEM_ERROR, "commitOrRollback field wrong")
    try:
        _end(delivery, control, call, peer)
    except IndexBehind:
        return _end_later(delivery, control, call, peer)
    return None


async def _end_later(
    delivery: DeliveryServices, control: ControlPlane, call: EndTransaction, peer: Peer
) -> None:
    """The same, once it can be known what became of the half message."""
    await delivery.transactions.queue.index()
    _end(delivery, control, call, peer)


def _end(
    delivery: DeliveryServices, control: ControlPlane, call: EndTransaction, peer: Peer
) -> None:
    """All at once, so that nothing else ends it meanwhile."""
    half = _found(delivery, control, call, peer)
    transactions = delivery.transactions
    try:
        if call.commit_or_rollback == ROLL_BACK:
            transactions.roll_back(half)
        elif _is_doubtful(delivery, call, half) and transactions.queue.was_delivered(half):
            transactions.end(half.offset)
        else:
            transactions.commit(half)
    except MessageIllegal as error:
        _refuse(ResponseCode.MESSAGE_ILLEGAL, str(error))
    except StoreError as error:
        _refuse(ResponseCode.SERVICE_NOT_AVAILABLE, str(error))


def _found(
    delivery: DeliveryServices, control: ControlPlane, call: EndTransaction, peer: Peer
) -> HalfMessage:
    """The half message that a call may end, wherever it stands by now."""
    transactions = delivery.transactions
    half = transactions.queue.find(call.position)
    if half is None or not half.topic or not names.can_clients_send_to(half.topic):
        _fault(TransactionFault.UNKNOWN, call, peer)
    if half.has_immunity and not call.from_transaction_check:
        timeout_ms, now_ms = control.settings.config.transaction_timeout, control.clock.now_ms()
        if is_too_late(half.facts, timeout_ms, now_ms):
            _fault(TransactionFault.LATE, call, peer)
    said = HalfMessagePosition(call.producer_group, call.half_offset, call.position)
    if fault := mismatch(half.place, said):
        _fault(fault, call, peer)
    current = transactions.current(half)
    if current is None:
        _fault(TransactionFault.ENDED, call, peer)
    return current


def _is_doubtful(delivery: DeliveryServices, call: EndTransaction, half: HalfMessage) -> bool:
    """Whether it may have been delivered before: what is new and unasked for has not been."""
    return call.from_transaction_check or half.was_put_back or delivery.transactions.is_old(half)


def resume(
    message_log: MessageLog, delivery: DeliveryServices, call: ResumeCheck, _peer: Peer
) -> HandlerReply:
    """Has the producer of a message that was given up asked from the beginning.

    A message that a service has set aside goes back to that service, likewise.
    """
    record = _put_away(message_log, call.msg_id or "")
    is_set_aside = record.topic == names.SET_ASIDE_TOPIC
    work = delivery.set_aside.retry if is_set_aside else delivery.transactions.resume
    try:
        work(record)
    except (StoreError, MessageIllegal, RecordError, ValueError) as error:
        goal = "its service" if is_set_aside else names.HALF_TOPIC
        _refuse(ResponseCode.SYSTEM_ERROR, f"Put message back to {goal} failed. {error}")
    return None


def _put_away(message_log: MessageLog, message_id: str) -> Record:
    """The message of an id, which was given up or set aside."""
    try:
        _, position = parse_offset_message_id(message_id)
    except RecordError as error:
        _refuse(ResponseCode.SYSTEM_ERROR, str(error))
    found = message_log.store.message_at(position) if position >= 0 else None
    record = decode(found) if found is not None else None
    if record is None or record.topic not in PUT_AWAY:
        _refuse(
            ResponseCode.SYSTEM_ERROR,
            f"{message_id} is no message of {names.CHECK_MAX_TIME_TOPIC}"
            f" or {names.SET_ASIDE_TOPIC}",
        )
    return record


def _fault(fault: TransactionFault, call: EndTransaction, peer: Peer) -> NoReturn:
    log.warning(
        "%s of group %s cannot end the half message at %d: %s",
        peer.address, call.producer_group, call.position, fault.value,
    )  # fmt: skip
    _refuse(CODES.get(fault, ResponseCode.SYSTEM_ERROR), fault.value)


def _refuse(code: ResponseCode, remark: str) -> NoReturn:
    raise CallRefused(code, remark)
