"""Send: stores messages of producers, one at a time or in batches.

Every reply names the region, refusals as well: the C++ client reads it.
"""

from msgspec.structs import replace

from roquet.broker.broker import BrokerComponent
from roquet.broker.control import ControlPlane
from roquet.broker.ingest.append import SendCall
from roquet.broker.log.message_log import MessageLog
from roquet.broker.operations.safe_replies import SafeReplies
from roquet.broker.operations.sending import SendChecks
from roquet.model.errors import CallRefused, MessageIllegal, StoreError
from roquet.net.router import HandlerReply, Peer
from roquet.wire.calls.send import SendBatch, SendReply


class SendHandler(BrokerComponent, frozen=True):
    """Stores messages of producers."""

    log: MessageLog
    control: ControlPlane
    checks: SendChecks
    replies: SafeReplies

    def send(self, call: SendCall | SendBatch, peer: Peer) -> HandlerReply:
        """Store one message, or the messages of a batch: its field tells, whatever the code."""
        try:
            self.checks.check_in_sync(call)
            queue_id = self.checks.select_queue(call)
            if call.batch:
                return self._batch(call, queue_id, peer)
            stored = self.log.ingest.append(call, queue_id, peer)
        except (CallRefused, MessageIllegal, StoreError) as error:
            return self.checks.refusal(error)
        appended, config = stored.appended, self.control.settings.config
        reply = SendReply(
            msg_id=self.log.ingest.message_id(appended.position),
            queue_id=stored.queue_id,
            queue_offset=appended.queue_offset,
            transaction_id=stored.unique_key,
            region=config.region,
            trace_on=config.trace_on,
        )
        if stored.recall_handle:
            reply = replace(reply, recall_handle=stored.recall_handle)
        if stored.waits or self.checks.must_wait(call):
            return self.replies.when_stored(reply, appended.position + appended.size, call.topic)
        return reply

    def _batch(self, call: SendCall, queue_id: int, peer: Peer) -> HandlerReply:
        stored = self.log.ingest.append_batch(call, queue_id, peer)
        appended, config = stored.appended, self.control.settings.config
        reply = SendReply(
            msg_id=self.log.ingest.message_ids(appended.positions),
            queue_id=queue_id,
            queue_offset=appended.queue_offset,
            region=config.region,
            trace_on=config.trace_on,
        )
        if stored.waits:
            return self.replies.when_stored(reply, appended.end, call.topic)
        return reply
