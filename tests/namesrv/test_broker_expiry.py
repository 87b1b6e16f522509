from collections.abc import Callable

import msgspec
from tests.namesrv.conftest import FakePeer, MovedClock

from roquet.model.topic import DataVersion
from roquet.namesrv import broker_expiry
from roquet.namesrv.handlers import registration
from roquet.namesrv.state import NameServerState
from roquet.wire.calls.route import BrokerHeartbeat, QueryDataVersion, RegisterBroker
from roquet.wire.fastjson import codec

Registers = Callable[..., RegisterBroker]


def beat(limit_ms: int | None = None) -> BrokerHeartbeat:
    return BrokerHeartbeat(
        cluster_name="c",
        broker_addr="10.0.0.0:10911",
        broker_name="a",
        heartbeat_timeout_mills=limit_ms,
    )


def lives(state: NameServerState) -> bool:
    broker_expiry.step(state)
    return bool(state.brokers.registrations)


def test_two_minutes_of_silence_end_a_broker(
    state: NameServerState, clock: MovedClock, peer: FakePeer, of_broker: Registers
) -> None:
    registration.register(state, of_broker("a"), peer)
    clock.ms += 120_000
    assert lives(state)
    clock.ms += 1
    assert not lives(state)


def test_a_broker_may_ask_for_less_patience(
    state: NameServerState, clock: MovedClock, peer: FakePeer, of_broker: Registers
) -> None:
    hasty = msgspec.structs.replace(of_broker("a"), heartbeat_timeout_millis=10_000)
    registration.register(state, hasty, peer)
    clock.ms += 10_001
    assert not lives(state)


def test_heartbeats_keep_a_broker_with_the_patience_it_asked_for(
    state: NameServerState, clock: MovedClock, peer: FakePeer, of_broker: Registers
) -> None:
    hasty = msgspec.structs.replace(of_broker("a"), heartbeat_timeout_millis=10_000)
    registration.register(state, hasty, peer)
    clock.ms += 9_000
    registration.heartbeat(state, beat(), peer)
    clock.ms += 9_000
    assert lives(state)
    clock.ms += 9_000
    assert not lives(state)


def test_a_heartbeat_may_change_the_patience(
    state: NameServerState, clock: MovedClock, peer: FakePeer, of_broker: Registers
) -> None:
    registration.register(state, of_broker("a"), peer)
    registration.heartbeat(state, beat(limit_ms=1_000), peer)
    clock.ms += 1_001
    assert not lives(state)


def test_a_broker_that_asks_about_its_unchanged_topics_stays(
    state: NameServerState, clock: MovedClock, peer: FakePeer, of_broker: Registers
) -> None:
    hasty = msgspec.structs.replace(of_broker("a"), heartbeat_timeout_millis=10_000)
    registration.register(state, hasty, peer)
    question = QueryDataVersion(
        broker_name="a",
        broker_addr="10.0.0.0:10911",
        cluster_name="c",
        broker_id=0,
        body=codec.dumps(DataVersion(state_version=1, counter=1)),
    )
    for _ in range(3):
        clock.ms += 9_000
        assert not registration.data_version(state, question, peer).changed
        assert lives(state)
