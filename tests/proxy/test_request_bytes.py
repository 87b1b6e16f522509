"""Bytes of requests, which strangers send."""

import pytest

from roquet.proxy.protos import definition_pb2 as pb
from roquet.proxy.request_bytes import check_read, reader
from roquet.rules.proxy.status import ProxyRefusal, StatusCode


def test_bytes_of_a_message_are_read() -> None:
    resource = pb.Resource(name="orders")
    assert check_read(reader(pb.Resource)(resource.SerializeToString())) == resource


@pytest.mark.parametrize("data", [b"\xff" * 100, b"\x0a\x05abc", b"\x0a\x01\xff"])
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ProxyRefusal, match="no request of this method") as caught:
        check_read(reader(pb.Resource)(data))
    assert caught.value.code is StatusCode.BAD_REQUEST
