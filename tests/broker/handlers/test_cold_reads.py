from typing import Any

import pytest

from roquet.broker.broker import Broker
from roquet.broker.handlers import cold_reads as handlers
from roquet.broker.handlers.settings import update
from roquet.model.errors import CallRefused
from roquet.wire.calls.admin.cold_reads import (
    ColdReadLimitTable,
    GetColdReadLimits,
    RemoveColdReadLimit,
    SetColdReadLimits,
    SetReadAhead,
)
from roquet.wire.calls.admin.settings import UpdateSettings
from roquet.wire.codes import ResponseCode
from roquet.wire.fastjson import codec


def read_limits(broker: Broker, peer: Any) -> ColdReadLimitTable:
    return codec.loads(
        broker.bind(handlers.limits)(GetColdReadLimits(), peer).body, ColdReadLimitTable
    )


async def test_limits_are_kept_and_told_and_said_to_have_no_effect(
    broker: Broker, peer: Any
) -> None:
    reply = broker.bind(handlers.put_limits)(SetColdReadLimits(body=b"gg=1000\nhh=-1\n"), peer)
    assert (reply.code, "without effect" in (reply.remark or "")) == (0, True)
    assert read_limits(broker, peer).config_table == {"gg": 1000, "hh": -1}
    broker.bind(handlers.remove_limit)(RemoveColdReadLimit(body=b"gg"), peer)
    assert read_limits(broker, peer).config_table == {"hh": -1}


async def test_limits_of_the_settings_are_told(broker: Broker, peer: Any) -> None:
    assert read_limits(broker, peer).cg_cold_read_threshold == 3 * 1024 * 1024
    broker.bind(update)(UpdateSettings(body=b"globalColdReadThreshold=7"), peer)
    assert read_limits(broker, peer).global_cold_read_threshold == 7


@pytest.mark.parametrize(
    "body",
    [b"g=abc", b"g=", b"g=1e5", b"g=" + b"9" * 30, "g=\u0661".encode(), b"a b!=1", b"\xff=1"],
)
async def test_limits_that_are_none_are_refused(broker: Broker, peer: Any, body: bytes) -> None:
    with pytest.raises(CallRefused) as refused:
        broker.bind(handlers.put_limits)(SetColdReadLimits(body=b"ok=1\n" + body), peer)
    assert refused.value.code == ResponseCode.INVALID_PARAMETER
    assert read_limits(broker, peer).config_table == {}


async def test_modes_of_reading_ahead_are_taken_and_others_refused_as_the_genuine_broker_does(
    broker: Broker, peer: Any
) -> None:
    for mode in ("0", "1"):
        reply = broker.bind(handlers.read_ahead)(SetReadAhead(read_ahead_mode=mode), peer)
        assert f"success, mode: {mode}, without effect" in (reply.remark or "")
    for mode, code in (("7", 29), ("-1", 29), ("x", 1), ("", 1)):
        with pytest.raises(CallRefused) as refused:
            broker.bind(handlers.read_ahead)(SetReadAhead(read_ahead_mode=mode), peer)
        assert refused.value.code == code
