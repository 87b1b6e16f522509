import pytest
from tests.broker.conftest import MakeSend

from roquet.broker.broker import Broker
from roquet.broker.operations.sending import select_queue, send_refusal
from roquet.model.errors import CallRefused, MessageIllegal, StoreFull
from roquet.wire.codes import ResponseCode


async def test_the_first_message_makes_its_topic(broker: Broker, message: MakeSend) -> None:
    assert select_queue(broker.tables, broker.control, message(queue_id=3)) == 3
    assert broker.tables.topics.get("orders") is not None


async def test_a_queue_that_the_topic_lacks_is_refused(broker: Broker, message: MakeSend) -> None:
    with pytest.raises(CallRefused, match=r"request queueId\[99\] is illegal"):
        select_queue(broker.tables, broker.control, message(queue_id=99))


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (CallRefused(ResponseCode.NO_PERMISSION, "no"), ResponseCode.NO_PERMISSION),
        (MessageIllegal("no"), ResponseCode.MESSAGE_ILLEGAL),
        (StoreFull("no"), ResponseCode.SERVICE_NOT_AVAILABLE),
    ],
)
async def test_a_refusal_names_the_region_like_every_reply(
    broker: Broker, error: CallRefused | MessageIllegal | StoreFull, code: ResponseCode
) -> None:
    reply = send_refusal(broker.control, error)
    assert (reply.code, reply.remark, reply.region) == (code, "no", "DefaultRegion")
