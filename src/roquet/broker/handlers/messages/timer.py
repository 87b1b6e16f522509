"""Timer: recalls a message before its delivery time; progress and metrics of the timer."""

from collections.abc import Awaitable
from typing import Final

from roquet.broker.broker import BrokerComponent
from roquet.broker.control import ControlPlane
from roquet.broker.delivery import DeliveryServices
from roquet.broker.log.message_log import MessageLog
from roquet.broker.operations.safe_replies import SafeReplies
from roquet.broker.operations.sending import SendChecks
from roquet.broker.refusals import no_permission, no_topic
from roquet.broker.tables.broker_tables import BrokerTables
from roquet.model import properties as names
from roquet.model.errors import CallRefused, FieldError, MessageIllegal, StoreError, StoreFailed
from roquet.model.flags import SysFlag
from roquet.net.router import HandlerReply, Peer
from roquet.store.timer.layout import encode_checkpoint
from roquet.wire.call import Reply
from roquet.wire.calls.timer import GetTimerCheckpoint, GetTimerMetrics, Recall, RecallReply
from roquet.wire.codes import ResponseCode
from roquet.wire.fastjson import codec
from roquet.wire.receipt_handle import TAG, RecallHandle, decode_recall_handle
from roquet.wire.records.host_bytes import HOST_SIZES
from roquet.wire.records.record import Record

BODY: Final = b"0"
"""Body of a recall: it is never read, but no message may be empty."""


class TimerHandler(BrokerComponent, frozen=True):
    """Recalls timed messages, and reports how many wait."""

    log: MessageLog
    delivery: DeliveryServices
    tables: BrokerTables
    control: ControlPlane
    checks: SendChecks
    replies: SafeReplies

    def recall(self, call: Recall, peer: Peer) -> HandlerReply:
        """Recall a message that waits for its delivery time."""
        region = self.control.settings.config.region
        try:
            handle = self._allowed(call)
            self.checks.check_in_sync()
            self._note(call, handle, peer)
        except CallRefused as error:
            return RecallReply(code=error.code, remark=error.remark, region=region)
        except (MessageIllegal, StoreError) as error:
            remark = f"recall failed, execute error: {error}"
            return RecallReply(code=ResponseCode.SYSTEM_ERROR, remark=remark, region=region)
        noted = self.replies.when_safe(RecallReply(msg_id=handle.unique_key, region=region))
        return noted if isinstance(noted, Reply) else self._when_safe(noted, region)

    def checkpoint(self, _call: GetTimerCheckpoint, _peer: Peer) -> Reply:
        """Return the checkpoint of the timer."""
        return Reply(body=encode_checkpoint(self.delivery.checkpoints.safe_progress().timer))

    def metrics(self, _call: GetTimerMetrics, _peer: Peer) -> Reply:
        """Return the number of waiting messages by topic."""
        return Reply(body=codec.dumps(self.delivery.timer.context.metrics.content()))

    def _allowed(self, call: Recall) -> RecallHandle:
        config = self.control.settings.config
        if not config.recall_message:
            raise no_permission("recall failed, operation is forbidden")
        if self.tables.topics.get(call.topic) is None:
            raise no_topic(f"recall failed, the topic[{call.topic}] not exist")
        try:
            handle = decode_recall_handle(call.recall_handle)
        except FieldError as error:
            raise CallRefused(ResponseCode.ILLEGAL_OPERATION, str(error)) from error
        if handle.topic != call.topic:
            fault: str | None = "recall failed, topic not match"
        elif handle.broker != config.broker_name:
            fault = "recall failed, broker service not available"
        else:
            timer, now_ms = self.delivery.timer, self.control.clock.now_ms()
            fault = timer.recall_fault(handle.deliver_ms, now_ms, config.timer_max_delay)
        if fault:
            raise CallRefused(ResponseCode.ILLEGAL_OPERATION, fault)
        return handle

    def _note(self, call: Recall, handle: RecallHandle, peer: Peer) -> None:
        """Store the recall: it waits for the same second and is read first."""
        now_ms, key = self.control.clock.now_ms(), handle.unique_key
        properties = {
            names.TAGS: TAG,
            names.TIMER_DELETE_UNIQUE_KEY: (
                f"{handle.topic}+{key}"
                if self.control.settings.config.recall_key_with_topic
                else key
            ),
            names.UNIQUE_KEY: key,
            names.TIMER_DELIVER_MS: str(handle.deliver_ms),
            names.BORN_TIMESTAMP: str(now_ms),
        }
        if call.producer_group:
            properties[names.PRODUCER_GROUP] = call.producer_group
        host = peer.host_bytes
        record = Record(
            topic=handle.topic,
            queue_id=0,
            queue_offset=0,
            position=0,
            size=0,
            body=BODY,
            properties=b"",
            flag=0,
            sys_flag=0 if len(host) == HOST_SIZES[0] else int(SysFlag.BORN_HOST_V6),
            born_ms=now_ms,
            born_host=host,
            stored_ms=now_ms,
            store_host=self.log.ingest.store_host,
            reconsume_times=0,
            prepared_position=0,
            crc=0,
        )
        self.log.ingest.reappend(record, topic=handle.topic, properties=properties)

    async def _when_safe(self, noted: Awaitable[RecallReply], region: str) -> RecallReply:
        """The reply once it is safe, or after the timeout, as in the genuine broker."""
        try:
            return await noted
        except (CallRefused, StoreFailed) as error:
            remark = f"recall failed, execute error: {error}"
            return RecallReply(code=ResponseCode.SYSTEM_ERROR, remark=remark, region=region)
