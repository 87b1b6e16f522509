import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from tests.namesrv.conftest import FakePeer, of_broker
from tests.raising import raises

from roquet.model.errors import CallRefused
from roquet.model.route import TopicRoute
from roquet.namesrv.handlers import kv, registration, topics
from roquet.namesrv.kv_store import KVStore
from roquet.namesrv.state import NameServerState
from roquet.store.filesystem.memory_files import MemoryFiles
from roquet.wire.call import Reply
from roquet.wire.calls import route as calls
from roquet.wire.calls.bodies import KVTable
from roquet.wire.calls.route import RegisterBroker
from roquet.wire.codes import ResponseCode
from roquet.wire.fastjson import codec

Registers = Callable[..., RegisterBroker]


def order_of(state: NameServerState) -> str | None:
    body = topics.route(state, calls.GetRoute(topic="orders"), FakePeer()).body
    return codec.loads(body, TopicRoute).order_topic_conf


async def test_a_value_is_kept_listed_and_deleted(state: NameServerState, peer: FakePeer) -> None:
    await kv.put_value(state, calls.PutKV(namespace="n", key="k", value="v"), peer)
    assert kv.get_value(state, calls.GetKV(namespace="n", key="k"), peer).value == "v"
    listed = kv.list_values(state, calls.ListKV(namespace="n"), peer)
    assert codec.loads(listed.body, KVTable).table == {"k": "v"}
    await kv.delete_value(state, calls.DeleteKV(namespace="n", key="k"), peer)
    with raises(CallRefused, code=ResponseCode.QUERY_NOT_FOUND):
        kv.get_value(state, calls.GetKV(namespace="n", key="k"), peer)
    with raises(CallRefused, code=ResponseCode.QUERY_NOT_FOUND):
        kv.list_values(state, calls.ListKV(namespace="n"), peer)


async def test_order_settings_reach_brokers_always_and_clients_when_asked_for(
    state: NameServerState, peer: FakePeer
) -> None:
    put = calls.PutKV(namespace="ORDER_TOPIC_CONFIG", key="orders", value="a:4")
    await kv.put_value(state, put, peer)
    reply = registration.register(state, of_broker("a"), peer)
    assert isinstance(reply, Reply)
    assert json.loads(reply.body) == {"table": {"orders": "a:4"}}
    assert order_of(state) is None
    ordered = msgspec.structs.replace(
        state, config=msgspec.structs.replace(state.config, order_messages=True)
    )
    assert order_of(ordered) == "a:4"


async def test_values_that_come_together_are_written_together(state: NameServerState) -> None:
    files = CountingFiles()
    state.kv_store = KVStore(Path("/"), files)
    calls_ = [calls.PutKV(namespace="n", key=f"k{n}", value="v") for n in range(50)]
    await asyncio.gather(*(kv.put_value(state, call, FakePeer()) for call in calls_))
    assert len(KVStore(Path("/"), files).all("n")) == 50
    assert files.count <= 2, "the first, and one for all that came meanwhile"


class CountingFiles(MemoryFiles):
    count = 0

    def replace(self, path: Path, data: bytes, **options: Any) -> None:
        self.count += 1
        super().replace(path, data, **options)
