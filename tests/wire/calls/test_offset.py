from roquet.wire.calls.offset import (
    MaxOffset,
)
from roquet.wire.command import Command
from roquet.wire.fields import decode_call


def test_the_end_of_a_queue_means_the_committed_one_unless_said_otherwise() -> None:
    ext = {"topic": "t", "queueId": "0"}
    assert decode_call(Command(30, fields=ext), MaxOffset).committed
    assert not decode_call(Command(30, fields=ext | {"committed": "false"}), MaxOffset).committed
