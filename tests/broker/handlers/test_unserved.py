import importlib
import pkgutil

import pytest
from tests.broker.conftest import refuses

from roquet.broker.app import BrokerServer
from roquet.broker.handlers import HANDLERS, NOT_SERVED
from roquet.broker.handlers.unserved import UNSERVED
from roquet.net.channel import Channel
from roquet.wire import calls
from roquet.wire.call import Call, Reply
from roquet.wire.codes import RequestCode, ResponseCode


def served() -> set[RequestCode]:
    """What brokers, name servers or clients answer."""
    for module in pkgutil.iter_modules(calls.__path__, "roquet.wire.calls."):
        importlib.import_module(module.name)
    namesrv = importlib.import_module("roquet.namesrv.handlers").HANDLERS
    return {kind.code for kind in (*HANDLERS, *namesrv, *NOT_SERVED)}


def test_every_request_is_served_or_there_is_a_reason_why_not() -> None:
    assert sorted(code.name for code in set(RequestCode) - served() - UNSERVED.keys()) == []


def test_no_served_request_is_listed_as_unserved() -> None:
    assert sorted(code.name for code in UNSERVED.keys() & served()) == []


def test_each_reason_is_a_sentence() -> None:
    assert [code.name for code, reason in UNSERVED.items() if len(reason.split()) < 5] == []


class Unknown(Call[Reply], frozen=True, kw_only=True):
    """A call that this broker does not know; the code is set by each test."""


@pytest.mark.parametrize("code", [RequestCode.SWITCH_TIMER_ENGINE, RequestCode.SUSPEND_CONSUMER])
async def test_an_unserved_request_is_refused_in_apaches_words_with_the_reason(
    server: BrokerServer, code: RequestCode
) -> None:
    Unknown.code = code
    channel = await Channel.connect("127.0.0.1", server.port)
    with refuses(ResponseCode.REQUEST_CODE_NOT_SUPPORTED) as refused:
        await channel.call(Unknown())
    assert refused.value.remark == f" request type {int(code)} not supported: {UNSERVED[code]}"
    await channel.close()
