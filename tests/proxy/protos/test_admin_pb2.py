"""Requests and answers of the service for operators."""

from roquet.proxy.protos import admin_pb2 as admin
from roquet.proxy.protos import definition_pb2 as pb


def test_a_request_is_read_as_it_was_written() -> None:
    request = admin.ListSubscriptionRequest(topic=pb.Resource(name="t"))
    assert admin.ListSubscriptionRequest.FromString(request.SerializeToString()) == request
