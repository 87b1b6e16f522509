import pytest

from roquet.model.errors import FieldError
from roquet.model.subscription import HeartbeatData
from roquet.wire.calls.bodies import LockBody
from roquet.wire.request_body import (
    LOOSE_SIZE_MAX,
    LOOSE_VALUES_MAX,
    STRICT_SIZE_MAX,
    STRICT_VALUES_MAX,
    decode_body,
)


def test_strict_and_loose_bodies_are_read() -> None:
    assert decode_body(b'{"clientID":"a"}', HeartbeatData).client_id == "a"
    assert decode_body(b'{clientID:"a",consumerDataSet:null}', HeartbeatData).client_id == "a"


def test_a_lock_of_all_queues_that_a_topic_may_have_is_read() -> None:
    queue = '{"brokerName":"broker-name-a","queueId":%d,"topic":"orders-of-all-customers"}'
    queues = ",".join(queue % n for n in range(12_000))
    body = f'{{"clientId":"c","consumerGroup":"g","mqSet":[{queues}]}}'.encode()
    assert len(decode_body(body, LockBody).mq_set) == 12_000


def test_a_body_over_the_limit_of_bytes_is_refused_unread() -> None:
    with pytest.raises(FieldError, match="1048577 bytes, the limit is 1048576 bytes: send it in"):
        decode_body(b" " * (STRICT_SIZE_MAX + 1), HeartbeatData)


def test_a_body_over_the_limit_of_values_is_refused_unread() -> None:
    with pytest.raises(FieldError, match="131073 values, the limit is 131072 values"):
        decode_body(b"," * (STRICT_VALUES_MAX + 1), HeartbeatData)


@pytest.mark.parametrize(
    "body",
    [
        b"{a:[" + b"[]," * LOOSE_VALUES_MAX + b"[]]}",
        b"{" + b" " * LOOSE_SIZE_MAX,
        b"[" * (LOOSE_VALUES_MAX + 1),
        b'{"clientID":"\xff' + b"," * LOOSE_VALUES_MAX,
    ],
)
def test_a_long_body_has_to_be_strict_json(body: bytes) -> None:
    with pytest.raises(FieldError, match="has to be strict JSON of the right types"):
        decode_body(body, HeartbeatData)


def test_a_long_body_of_strict_json_is_read() -> None:
    names = ",".join(f'{{"groupName":"{n}"}}' for n in range(20_000))
    body = f'{{"clientID":"a","producerDataSet":[{names}]}}'.encode()
    assert len(decode_body(body, HeartbeatData).producer_data_set) == 20_000
