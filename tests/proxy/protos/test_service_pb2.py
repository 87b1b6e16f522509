"""Requests and answers of RocketMQ 5's service."""

from roquet.proxy.protos import definition_pb2 as pb
from roquet.proxy.protos import service_pb2 as service


def test_a_request_is_read_as_it_was_written() -> None:
    request = service.QueryRouteRequest(topic=pb.Resource(name="t"))
    assert service.QueryRouteRequest.FromString(request.SerializeToString()) == request
