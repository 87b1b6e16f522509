"""Admission of requests: whose they are."""

import pytest
from tests.proxy.conftest import Context

from roquet.proxy.admission import Admission
from roquet.rules.proxy.status import ProxyRefusal, StatusCode


def test_a_caller_has_the_address_of_its_connection() -> None:
    caller = Admission().admit(Context({"x-mq-client-id": "c"}, 1.5), "Heartbeat")
    assert (caller.client_id, caller.address, caller.left_ms) == ("c", "10.0.0.7:4711", 1_500)


def test_a_caller_without_an_id_is_refused() -> None:
    with pytest.raises(ProxyRefusal) as caught:
        Admission().admit(Context({}, None), "Heartbeat")
    assert caught.value.code is StatusCode.CLIENT_ID_REQUIRED
