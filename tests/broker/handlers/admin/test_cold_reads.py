import pytest
from tests.broker.conftest import FakePeer

from roquet.broker.broker import Broker
from roquet.broker.handlers.admin.cold_reads import ColdReadsHandler
from roquet.broker.handlers.admin.settings import SettingsHandler
from roquet.model.errors import CallRefused
from roquet.wire.calls.admin.settings import (
    ColdReadLimitTable,
    GetColdReadLimits,
    RemoveColdReadLimit,
    SetColdReadLimits,
    SetReadAhead,
    UpdateSettings,
)
from roquet.wire.codes import ResponseCode
from roquet.wire.fastjson import codec


def read_limits(broker: Broker, peer: FakePeer) -> ColdReadLimitTable:
    return codec.loads(
        broker.bind(ColdReadsHandler.limits)(GetColdReadLimits(), peer).body, ColdReadLimitTable
    )


async def test_limits_are_kept_and_listed_with_a_warning_that_they_have_no_effect(
    broker: Broker, peer: FakePeer
) -> None:
    reply = broker.bind(ColdReadsHandler.put_limits)(
        SetColdReadLimits(body=b"gg=1000\nhh=-1\n"), peer
    )
    assert (reply.code, "without effect" in (reply.remark or "")) == (0, True)
    assert read_limits(broker, peer).config_table == {"gg": 1000, "hh": -1}
    broker.bind(ColdReadsHandler.remove_limit)(RemoveColdReadLimit(body=b"gg"), peer)
    assert read_limits(broker, peer).config_table == {"hh": -1}


async def test_limits_of_the_settings_are_listed(broker: Broker, peer: FakePeer) -> None:
    assert read_limits(broker, peer).cg_cold_read_threshold == 3 * 1024 * 1024
    broker.bind(SettingsHandler.update)(UpdateSettings(body=b"globalColdReadThreshold=7"), peer)
    assert read_limits(broker, peer).global_cold_read_threshold == 7


@pytest.mark.parametrize(
    "body",
    [b"g=abc", b"g=", b"g=1e5", b"g=" + b"9" * 30, "g=\u0661".encode(), b"a b!=1", b"\xff=1"],
)
async def test_malformed_limits_are_refused(broker: Broker, peer: FakePeer, body: bytes) -> None:
    with pytest.raises(CallRefused) as refused:
        broker.bind(ColdReadsHandler.put_limits)(SetColdReadLimits(body=b"ok=1\n" + body), peer)
    assert refused.value.code == ResponseCode.INVALID_PARAMETER
    assert read_limits(broker, peer).config_table == {}


async def test_read_ahead_modes_are_accepted_or_refused_like_by_apaches_broker(
    broker: Broker, peer: FakePeer
) -> None:
    for mode in ("0", "1"):
        reply = broker.bind(ColdReadsHandler.read_ahead)(SetReadAhead(read_ahead_mode=mode), peer)
        assert f"success, mode: {mode}, without effect" in (reply.remark or "")
    for mode, code in (("7", 29), ("-1", 29), ("x", 1), ("", 1)):
        with pytest.raises(CallRefused) as refused:
            broker.bind(ColdReadsHandler.read_ahead)(SetReadAhead(read_ahead_mode=mode), peer)
        assert refused.value.code == code
