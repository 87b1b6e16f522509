"""Values of RocketMQ 5's messages."""

from roquet.proxy.protos import definition_pb2 as pb


def test_enums_and_their_values_have_their_names() -> None:
    assert pb.Code.Name(pb.TOPIC_NOT_FOUND) == "TOPIC_NOT_FOUND"
