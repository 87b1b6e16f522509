import asyncio
import struct
import zlib
from collections.abc import Callable

import msgspec
import pytest
from tests.namesrv.conftest import FakePeer, of_broker

from roquet.model.errors import CallRefused
from roquet.model.topic import DataVersion
from roquet.namesrv.handlers import registration
from roquet.namesrv.state import NameServerState
from roquet.wire.call import Reply
from roquet.wire.calls import route as calls
from roquet.wire.calls.admin.namesrv import GetBrokerMembers
from roquet.wire.calls.route import RegisterBroker
from roquet.wire.fastjson import codec

Registers = Callable[..., RegisterBroker]


def test_a_follower_gets_its_leaders_address(state: NameServerState, peer: FakePeer) -> None:
    leader = registration.register(state, of_broker("a", 0), peer)
    follower = registration.register(state, of_broker("a", 1), peer)
    assert isinstance(leader, calls.RegisterBrokerReply)
    assert isinstance(follower, calls.RegisterBrokerReply)
    assert (leader.master_addr, leader.ha_server_addr) == (None, None)
    assert follower.master_addr == "10.0.0.0:10911"
    assert follower.ha_server_addr == "10.0.0.0:10912"


def test_a_damaged_registration_changes_nothing(state: NameServerState, peer: FakePeer) -> None:
    wrong = msgspec.structs.replace(of_broker(), body_crc32=1)
    with pytest.raises(CallRefused, match="crc32 not match"):
        registration.register(state, wrong, peer)
    torn = msgspec.structs.replace(of_broker(), body=b'{"topicConfig')
    with pytest.raises(CallRefused, match="decode RegisterBroker"):
        registration.register(state, torn, peer)
    assert not state.brokers.registrations


async def test_a_registration_that_unfolds_beyond_a_frame_is_refused(
    state: NameServerState,
) -> None:
    bomb = msgspec.structs.replace(
        of_broker(), compressed=True, body=zlib.compress(bytes(100 << 20))
    )
    with pytest.raises(CallRefused, match="beyond the limit of 16777216 bytes"):
        await slowly(state, bomb)
    assert not state.brokers.registrations


def test_one_topic_of_an_unknown_broker_is_refused_so_that_it_registers_all(
    state: NameServerState,
) -> None:
    with pytest.raises(CallRefused, match="register broker failed"):
        registration.register(state, of_broker(new=1), FakePeer())


def test_a_broker_that_leaves_is_forgotten_at_once(state: NameServerState, peer: FakePeer) -> None:
    registration.register(state, of_broker("a"), peer)
    call = calls.UnregisterBroker(
        broker_name="a", broker_addr="10.0.0.0:10911", cluster_name="c", broker_id=0
    )
    registration.unregister(state, call, peer)
    registration.unregister(state, call, peer)
    assert not state.brokers.registrations


def test_a_broker_asks_whether_its_edition_is_known(state: NameServerState, peer: FakePeer) -> None:
    def asked(edition: int) -> calls.DataVersionReply:
        version = DataVersion(state_version=edition, counter=edition)
        call = calls.QueryDataVersion(
            broker_name="a",
            broker_addr="10.0.0.0:10911",
            cluster_name="c",
            broker_id=0,
            body=codec.dumps(version),
        )
        return registration.data_version(state, call, peer)

    assert (asked(1).changed, asked(1).body) == (True, b"")
    registration.register(state, of_broker("a"), peer)
    assert not asked(1).changed
    assert asked(2).changed
    assert codec.loads(asked(2).body, DataVersion) == DataVersion(state_version=1, counter=1)


def test_a_heartbeat_of_an_unknown_broker_does_not_register_it(state: NameServerState) -> None:
    call = calls.BrokerHeartbeat(cluster_name="c", broker_addr="h:1", broker_name="z")
    registration.heartbeat(state, call, FakePeer())
    assert not state.brokers.registrations


def test_the_members_of_one_broker_name_are_listed(state: NameServerState, peer: FakePeer) -> None:
    registration.register(state, of_broker("a", 0), peer)
    registration.register(state, of_broker("a", 1), peer)
    registration.register(state, of_broker("b", 0, port=2), peer)
    call = GetBrokerMembers(cluster_name="c", broker_name="a")
    body = registration.members(state, call, peer).body
    assert body == (
        b'{"brokerMemberGroup":{"brokerAddrs":{0:"10.0.0.0:10911",1:"10.0.0.1:10911"},'
        b'"brokerName":"a","cluster":"c"}}'
    )
    nobody = GetBrokerMembers(cluster_name="c", broker_name="z")
    assert b'"brokerAddrs":{}' in registration.members(state, nobody, peer).body


async def slowly(state: NameServerState, call: RegisterBroker) -> Reply:
    """The answer to a registration that is decoded in slices."""
    answer = registration.register(state, call, FakePeer())
    assert not isinstance(answer, Reply)
    assert answer is not None
    reply = await answer
    assert reply is not None
    return reply


@pytest.mark.parametrize("compressed", [False, True])
async def test_others_have_their_turn_while_a_large_registration_is_decoded(
    state: NameServerState, compressed: bool
) -> None:
    names = {f"orders-of-the-{n:05}-th-customer": 1 for n in range(3_000)}
    call = of_broker("a", acting=None, **names)
    if compressed:
        lines = [f"{name} 1 1 6 SINGLE_TAG {{}}".encode() for name in names]
        parts = [b"{}", *lines, b"[]"]
        texts = [struct.pack(">i", len(part)) + part for part in parts]
        texts.insert(1, struct.pack(">i", len(lines)))
        body = zlib.compress(b"".join(texts), 1)
        call = msgspec.structs.replace(call, body=body, compressed=True, body_crc32=0)
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    reply = await slowly(state, call)
    task.cancel()
    assert reply.code == 0
    assert state.brokers.registrations["a", 0].topics.keys() == names.keys()
    assert turns > 3_000 // 256


async def test_concurrent_registrations_are_applied_in_order(state: NameServerState) -> None:
    large = of_broker(
        "a", acting=None, **{f"orders-of-the-{n:05}-th-customer": 1 for n in range(3_000)}
    )
    small = of_broker("a", edition=2, orders=4, other=1)
    await asyncio.gather(slowly(state, large), late(state, small))
    assert state.brokers.registrations["a", 0].version.counter == 2


async def late(state: NameServerState, call: RegisterBroker) -> None:
    await asyncio.sleep(0)
    assert state.registering.locked()
    await slowly(state, call)
