"""TransactionChecks: asks producers about open half messages, and gives up in the end.

every 30 s, from the oldest open one on, until one is too young:
    put back with one check more ──▶ ask one producer of its group, whichever is there
    asked often enough           ──▶ TRANS_CHECK_MAX_TIME_TOPIC, and a line in the log
"""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Final

import msgspec

from roquet.broker.ingest.destination import parse_queue_id
from roquet.broker.ingest.property_normalizer import properties_text
from roquet.broker.services.transactions.half_messages import PREPARED_OFFSET, HalfMessage
from roquet.broker.services.transactions.transactions import Transactions
from roquet.broker.tables.clients import Clients
from roquet.log_records import logger
from roquet.model import names
from roquet.model import properties as props
from roquet.model.errors import CallRefused, MessageIllegal, RecordError
from roquet.net.clock import Clock
from roquet.net.router import Peer
from roquet.rules.transaction import (
    CheckVerdict,
    TransactionPolicy,
    check_verdict,
    is_too_old,
    times_checked,
)
from roquet.wire.calls.transaction import CheckTransactionState
from roquet.wire.records.message_id import offset_message_id
from roquet.wire.records.property_text import lossless_bytes
from roquet.wire.records.record import pack

log = logger(__name__)

ROUND_MS: Final = 60_000
"""Longest round in ms, as in the genuine broker: the next one goes on there."""

TOGETHER: Final = 32
"""Half messages checked before others have their turn: some milliseconds."""

OPEN_MAX: Final = 16 * 1024 * 1024
"""Half messages after the oldest open one; with more, a round begins early."""

RELIEF_MS: Final = 10_000
"""Ms between two checks of that number."""

TOO_OLD: Final = "it is too old, its file is about to be deleted"
UNDECIDED: Final = "nobody has said whether to deliver it"


class TransactionChecks(msgspec.Struct, eq=False):
    """Asks producers whether to commit their transactions."""

    transactions: Transactions
    clients: Clients
    clock: Clock
    rng: Random
    may_see: Callable[[Peer, str], bool] = lambda *_: True
    """Whether a producer may see a message of a topic: a check shows it."""
    _is_at_work: bool = False
    _alone: set[str] = set()
    """Groups without a connected producer; each is logged once."""

    async def step(self, _now_ms: int = 0) -> None:
        """One round."""
        if self._is_at_work:
            return
        self._is_at_work = True
        try:
            await self._round()
        finally:
            self._is_at_work = False
            self.transactions.step()

    async def relieve(self, _now_ms: int = 0) -> None:
        """Begin a round early when there are many open half messages."""
        if len(self.transactions.halves) > OPEN_MAX:
            await self.step()

    async def _round(self) -> None:
        halves, round_ms = self.transactions.halves, self.clock.now_ms()
        deadline_ms = self.clock.monotonic_ms() + ROUND_MS
        least, end = self.transactions.queue.bounds()
        halves.forget(least)
        offset, count = halves.next_open(least), 0
        await self.transactions.queue.index()
        while offset < end and self.clock.monotonic_ms() < deadline_ms:
            try:
                goes_on = self._examine(offset, round_ms)
            except Exception as error:  # it must not hold up the others
                self.transactions.keep(offset, error)
                goes_on = True
            if not goes_on:
                return
            offset, count = halves.next_open(offset + 1), count + 1
            if count % TOGETHER == 0:
                await asyncio.sleep(0)
                await self.transactions.queue.index()

    def _examine(self, offset: int, round_ms: int) -> bool:
        """Check one open half message; whether the round goes on."""
        transactions = self.transactions
        half = transactions.queue.at(offset)
        if half is None:
            raise RecordError("a half message cannot be read")
        if transactions.is_old(half):
            try:
                if transactions.queue.was_settled(half):
                    transactions.end(offset)
                    return True
            except CallRefused as error:  # the key index is behind: better late than twice
                log.info("half messages are asked about later: %s", error)
                return False
        return self._judge(half, round_ms)

    def _judge(self, half: HalfMessage, round_ms: int) -> bool:
        policy, now_ms = self._policy, self.clock.now_ms()
        match check_verdict(half.facts, policy, round_ms, now_ms):
            case CheckVerdict.LATER:
                return False
            case CheckVerdict.KEEP:
                self._keep(half)
            case CheckVerdict.CHECK:
                self._check(half)
            case CheckVerdict.GIVE_UP:
                why = TOO_OLD if is_too_old(half.facts, policy, now_ms) else UNDECIDED
                self._give_up(half, why)
        return True

    @property
    def _policy(self) -> TransactionPolicy:
        config = self.transactions.config
        return TransactionPolicy(
            timeout_ms=config.transaction_timeout,
            check_max=config.transaction_check_max,
            reserved_ms=config.retention,
        )

    def _keep(self, half: HalfMessage) -> None:
        first = half.properties.get(PREPARED_OFFSET, str(half.offset))
        try:
            self.transactions.put_back(half, {PREPARED_OFFSET: first})
        except MessageIllegal:  # no room for another property: check it now instead
            self._check(half)

    def _check(self, half: HalfMessage) -> None:
        times = times_checked(half.facts.checked) + 1
        try:
            moved = self.transactions.put_back(half, {props.TRANSACTION_CHECK_TIMES: str(times)})
        except MessageIllegal:  # no room for the count: check it where it is
            moved = half
        self._ask(moved)

    def _give_up(self, half: HalfMessage, why: str) -> None:
        log.error(
            "half message %s of group %s, for topic %s, goes to %s after %d checks: %s",
            half.unique_key,
            half.properties.get(props.PRODUCER_GROUP),
            half.topic,
            names.CHECK_MAX_TIME_TOPIC,
            times_checked(half.facts.checked),
            why,
        )
        self.transactions.give_up(half)

    # -- asked -------------------------------------------------------------------------------

    def _ask(self, half: HalfMessage) -> None:
        group = half.properties.get(props.PRODUCER_GROUP, "")
        peer = self._producer(group, half.topic)
        if peer is None:
            if group not in self._alone and len(self._alone) < TOGETHER:
                self._alone.add(group)
                log.warning(
                    "no producer of group %s that may send to %s is here to be asked: trying again",
                    group,
                    half.topic,
                )
            return
        self._alone.discard(group)
        record, key = half.record, half.unique_key
        try:
            peer.oneway(
                CheckTransactionState(
                    body=_as_it_will_be(half),
                    topic=names.HALF_TOPIC,
                    half_offset=half.offset,
                    position=record.position,
                    msg_id=key,
                    transaction_id=key,
                    offset_msg_id=offset_message_id(record.store_host, record.position),
                    broker_name=self.transactions.config.broker_name,
                )
            )
        except Exception:
            log.exception("half message %s cannot be shown to a producer: trying again", key)

    def _producer(self, group: str, topic: str) -> Peer | None:
        """Any connected producer of a group that reads what it is sent and may see the topic."""
        peers = [p for p in self.clients.producers(group) if not p.closed and not p.is_full]
        first = self.rng.randrange(len(peers)) if peers else 0
        in_turn = (*peers[first:], *peers[:first])
        return next((peer for peer in in_turn if self.may_see(peer, topic)), None)


def _as_it_will_be(half: HalfMessage) -> bytes:
    """The record as the producer knows it, in its own topic and queue."""
    record = half.record
    text = half.properties.get(props.REAL_QUEUE_ID, "0")
    return pack(
        parse_queue_id(text),
        record.flag, record.queue_offset, record.position, record.sys_flag, record.born_ms,
        record.born_host, record.stored_ms, record.store_host, record.reconsume_times, 0,
        record.body, half.topic.encode(),
        lossless_bytes(properties_text(half.properties)),
    )  # fmt: skip
