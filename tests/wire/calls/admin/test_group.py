from roquet.model.queue import MessageQueue
from roquet.wire.calls.bodies import (
    ClientConnection,
    ConsumeStats,
    QueueProgress,
)
from roquet.wire.codes import Language
from roquet.wire.fastjson import codec


def test_a_member_is_encoded_as_in_java() -> None:
    one = ClientConnection(
        client_id="c@1", client_addr="10.0.0.7:5000", language=Language.JAVA, version=513
    )
    assert codec.dumps(one).decode() == (
        '{"clientAddr":"10.0.0.7:5000","clientId":"c@1","language":"JAVA","version":513}'
    )


def test_our_own_fields_are_left_out_unless_asked_for() -> None:
    stats = ConsumeStats(offset_table={MessageQueue("t", "b", 0): QueueProgress(broker_offset=5)})
    text = codec.dumps(stats).decode()
    assert "owners" not in text
    assert "decisions" not in text


def test_nothing_waits_where_a_group_is_ahead_of_the_queue() -> None:
    assert QueueProgress(broker_offset=5, consumer_offset=2).lag == 3
    assert QueueProgress(broker_offset=0, consumer_offset=9).lag == 0
