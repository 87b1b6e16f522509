"""The client of a request, by its metadata and its connection."""

import pytest

from roquet.proxy.caller import address_of, caller_of
from roquet.rules.proxy.status import ProxyRefusal, StatusCode


def test_a_client_says_its_id_and_may_say_the_rest() -> None:
    caller = caller_of({"x-mq-client-id": "c"}, "10.0.0.7:4711", 1.5)
    assert (caller.client_id, caller.language, caller.left_ms) == ("c", "", 1_500)


@pytest.mark.parametrize("client_id", ["", "  "])
def test_a_client_without_an_id_is_refused(client_id: str) -> None:
    with pytest.raises(ProxyRefusal) as caught:
        caller_of({"x-mq-client-id": client_id}, "", None)
    assert caught.value.code is StatusCode.CLIENT_ID_REQUIRED


def test_what_a_client_says_of_itself_has_a_limit() -> None:
    with pytest.raises(ProxyRefusal, match="1024 characters at most"):
        caller_of({"x-mq-client-id": "c" * 1_025}, "", None)
    long = {"x-mq-client-id": "c" * 1_024, "x-mq-language": "x" * 9_000}
    assert len(caller_of(long, "", None).language) == 64


def test_addresses_of_peers_are_read_as_grpc_writes_them() -> None:
    assert address_of("ipv4:10.0.0.7:4711") == "10.0.0.7:4711"
    assert address_of("ipv6:%5B::1%5D:4711") == "[::1]:4711"
    assert address_of("unix:/tmp/socket") == ""
