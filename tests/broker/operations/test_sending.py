from collections.abc import Callable
from typing import Any

import pytest
from tests.broker.conftest import LocalBroker, make_send

from roquet.broker.operations.sending import SendChecks
from roquet.model.errors import CallRefused, MessageIllegal, StoreFull
from roquet.rules.replication.acknowledgement import NOT_ENOUGH_REMARK
from roquet.rules.transaction import COMMIT
from roquet.wire.call import Reply
from roquet.wire.calls.reply import SendReplyMessage
from roquet.wire.calls.send import SendBack
from roquet.wire.calls.timer import Recall
from roquet.wire.calls.transaction import EndTransaction, ResumeCheck
from roquet.wire.codes import ResponseCode
from roquet.wire.records.batch import BatchItem, encode_batch
from roquet.wire.records.message_id import parse_offset_message_id

HALF = "TRAN_MSG\x01true\x02PGROUP\x01pg\x02UNIQ_KEY\x01k\x02"
TIMED = "TIMER_DELAY_MS\x0160000\x02UNIQ_KEY\x01t\x02"


async def test_the_first_message_makes_its_topic(broker: LocalBroker) -> None:
    assert broker.make(SendChecks).select_queue(make_send(queue_id=3)) == 3
    assert broker.tables.topics.get("orders") is not None


async def test_a_queue_that_the_topic_lacks_is_refused(broker: LocalBroker) -> None:
    with pytest.raises(CallRefused, match=r"request queueId\[99\] is illegal"):
        broker.make(SendChecks).select_queue(make_send(queue_id=99))


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (CallRefused(ResponseCode.NO_PERMISSION, "no"), ResponseCode.NO_PERMISSION),
        (MessageIllegal("no"), ResponseCode.MESSAGE_ILLEGAL),
        (StoreFull("no"), ResponseCode.SERVICE_NOT_AVAILABLE),
    ],
)
async def test_a_refusal_names_the_region_like_every_reply(
    broker: LocalBroker, error: CallRefused | MessageIllegal | StoreFull, code: ResponseCode
) -> None:
    reply = broker.make(SendChecks).refusal(error)
    assert (reply.code, reply.remark, reply.region) == (code, "no", "DefaultRegion")


class TooFew:
    """Lets a test say when too few logs are in sync."""

    def __init__(self, broker: LocalBroker, monkeypatch: pytest.MonkeyPatch) -> None:
        self._broker = broker
        self._monkeypatch = monkeypatch

    def begin(self) -> None:
        acknowledgements = self._broker.replication.acknowledgements
        self._monkeypatch.setattr(acknowledgements, "is_short", True)
        self._monkeypatch.setattr(acknowledgements, "check", self._check)

    def _check(self, *, waits: bool = True) -> None:
        if waits:
            raise CallRefused(ResponseCode.SYSTEM_ERROR, NOT_ENOUGH_REMARK)


@pytest.fixture
def too_few(broker: LocalBroker, monkeypatch: pytest.MonkeyPatch) -> TooFew:
    return TooFew(broker, monkeypatch)


@pytest.fixture
def settings() -> dict[str, Any]:
    return {"recall_message": True}


def refused(act: Callable[[], Any]) -> bool:
    """Whether this is refused for want of replicas, by a reply or an error."""
    try:
        reply = act()
    except CallRefused as error:
        return error.remark == NOT_ENOUGH_REMARK
    return bool(reply.remark == NOT_ENOUGH_REMARK)


async def test_while_too_few_logs_are_in_sync_nothing_that_clients_ask_for_is_stored(
    broker: LocalBroker, too_few: TooFew
) -> None:
    now_ms = broker.control.clock.now_ms()
    plain = broker.send()
    half = broker.send(properties=HALF, sys_flag=4, born_timestamp=now_ms)
    timed = broker.send(properties=TIMED)
    ends = EndTransaction(
        producer_group="pg",
        half_offset=half.queue_offset,
        position=parse_offset_message_id(half.msg_id)[1],
        commit_or_rollback=COMMIT,
        msg_id=half.transaction_id,
    )
    back = SendBack(
        offset=parse_offset_message_id(plain.msg_id)[1],
        group="g",
        delay_level=3,
        max_reconsume_times=16,
    )
    resumed = ResumeCheck(msg_id=plain.msg_id)
    taken_back = Recall(topic="orders", recall_handle=timed.recall_handle, producer_group="pg")
    end = broker.log.store.end_position
    too_few.begin()
    assert refused(lambda: broker.send())
    assert refused(lambda: broker.ask(back))
    assert refused(lambda: broker.ask(ends))
    assert refused(lambda: broker.ask(taken_back))
    assert refused(lambda: broker.ask(resumed))
    assert broker.log.store.end_position == end
    unsafe = broker.send(properties="WAIT\x01false\x02")
    assert unsafe.code == 0, "its sender does not wait for replicas"


async def test_a_reply_is_pushed_though_too_few_logs_are_in_sync_to_store_it(
    broker: LocalBroker, too_few: TooFew, caplog: pytest.LogCaptureFixture
) -> None:
    async def takes_it(_call: object, _timeout_ms: int) -> Reply:
        return Reply()

    broker.peer.reply_to = takes_it
    broker.tables.clients.producer = lambda _: broker.peer  # type: ignore[method-assign, assignment]
    too_few.begin()
    call = SendReplyMessage(
        body=b"answer",
        producer_group="g",
        topic="DefaultCluster_REPLY_TOPIC",
        queue_id=0,
        born_timestamp=5,
        properties="REPLY_TO_CLIENT\x01c\x02",
    )
    answered = await broker.ask(call)
    assert (answered.code, answered.msg_id) == (ResponseCode.SUCCESS, "0")
    assert broker.log.store.end_position == 0
    assert NOT_ENOUGH_REMARK in caplog.text


async def test_a_topic_takes_other_types_of_messages_unless_the_setting_says_otherwise(
    broker: LocalBroker,
) -> None:
    broker.put_topic("orders", 4, attributes={"message.type": "FIFO"})
    assert broker.send().code == ResponseCode.SUCCESS
    broker.configure(check_message_types=True)
    refused = broker.send()
    assert refused.code == ResponseCode.MESSAGE_ILLEGAL
    assert refused.remark.startswith("topic orders takes FIFO messages, this is a NORMAL message")
    assert broker.send(properties="__SHARDINGKEY\x01a\x02").code == ResponseCode.SUCCESS


async def test_one_message_of_another_type_refuses_its_whole_batch(broker: LocalBroker) -> None:
    broker.put_topic("orders", 4, attributes={"message.type": "FIFO"})
    broker.configure(check_message_types=True)
    ordered, plain = BatchItem(0, b"1", b"__SHARDINGKEY\x01a\x02"), BatchItem(0, b"2", b"")
    assert broker.send(encode_batch([ordered]), batch=True).code == ResponseCode.SUCCESS
    mixed = broker.send(encode_batch([ordered, plain]), batch=True)
    assert (mixed.code, "NORMAL" in mixed.remark) == (ResponseCode.MESSAGE_ILLEGAL, True)
    assert broker.send(b"no batch", batch=True).code == ResponseCode.MESSAGE_ILLEGAL
    assert broker.log.store.bounds("orders", 0) == (0, 1)


async def test_a_message_of_another_type_makes_no_topic(broker: LocalBroker) -> None:
    broker.configure(check_message_types=True)
    assert broker.send(properties="__SHARDINGKEY\x01a\x02").code == ResponseCode.MESSAGE_ILLEGAL
    assert broker.tables.topics.get("orders") is None
    assert broker.send().code == ResponseCode.SUCCESS


async def test_retries_keep_their_type_whatever_it_is(broker: LocalBroker) -> None:
    broker.configure(check_message_types=True)
    assert broker.send(topic="%RETRY%g", properties="DELAY\x013\x02").code == ResponseCode.SUCCESS
