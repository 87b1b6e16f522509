"""Registrations of brokers: register, heartbeat, unregister."""

import asyncio
from typing import Final

from roquet.model.errors import CallRefused, FieldError
from roquet.model.topic import MASTER_ID, DataVersion
from roquet.namesrv.kv_store import ORDER_NAMESPACE
from roquet.namesrv.state import NameServerState
from roquet.net.router import HandlerReply, Peer
from roquet.rules import routing
from roquet.rules.liveness import SILENCE_MS_MAX, LastSeen
from roquet.rules.routing import BrokerRegistration, RegistrationVerdict
from roquet.wire import registration
from roquet.wire.call import Reply
from roquet.wire.calls import route as calls
from roquet.wire.calls.admin.namesrv import BrokerMembers, BrokerMembersBody, GetBrokerMembers
from roquet.wire.calls.bodies import KVTable, RegisterBrokerBody
from roquet.wire.codes import ResponseCode
from roquet.wire.fastjson import codec
from roquet.wire.request_body import decode_body

UNFOLD_SIZE: Final = 4 * 1024
"""Bytes of a compressed registration that are decompressed at once, to at most 4 MiB; longer ones
are decompressed in a thread."""


def register(state: NameServerState, call: calls.RegisterBroker, peer: Peer) -> HandlerReply:
    """Accept a broker's registration; the reply names the leader to a follower.

    Large registrations are decoded in slices, one after the other. Others that come meanwhile
    wait, so that the latest one of a broker is accepted last.
    """
    if call.body_crc32 and registration.checksum(call.body) != call.body_crc32:
        raise CallRefused(ResponseCode.SYSTEM_ERROR, "crc32 not match")
    size_max = UNFOLD_SIZE if call.compressed else registration.PLAIN_SIZE_MAX
    if len(call.body) > size_max or state.registering.locked():
        return _register_in_slices(state, call, peer)
    try:
        body = registration.decode(call.body, compressed=call.compressed)
    except FieldError as error:
        raise _undecodable(error) from error
    return _taken(state, call, peer, body)


async def _register_in_slices(
    state: NameServerState, call: calls.RegisterBroker, peer: Peer
) -> calls.RegisterBrokerReply:
    async with state.registering:
        body = call.body
        try:
            if call.compressed:
                body = await asyncio.to_thread(registration.decompress, body)
            slices = registration.decode_slices(body, compressed=call.compressed)
            while True:
                try:
                    next(slices)
                except StopIteration as end:
                    return _taken(state, call, peer, end.value)
                await asyncio.sleep(0)
        except FieldError as error:
            raise _undecodable(error) from error


def _undecodable(error: FieldError) -> CallRefused:
    return CallRefused(ResponseCode.SYSTEM_ERROR, f"decode RegisterBroker: {error}")


def _taken(
    state: NameServerState, call: calls.RegisterBroker, peer: Peer, body: RegisterBrokerBody
) -> calls.RegisterBrokerReply:
    """Accept a decoded registration; returns the reply."""
    new = _registration(call, body)
    sign = LastSeen(
        seen_ms=state.clock.monotonic_ms(), limit_ms=call.heartbeat_timeout_millis or SILENCE_MS_MAX
    )
    whole = state.config.whole_registrations
    verdict = state.brokers.take(new, peer, sign, whole=whole)
    if verdict in (RegistrationVerdict.INCOMPLETE, RegistrationVerdict.TOO_MANY):
        raise CallRefused(ResponseCode.SYSTEM_ERROR, "register broker failed")
    leader = state.brokers.registrations.get((new.broker_name, MASTER_ID))
    follows = verdict is RegistrationVerdict.TAKEN and new.broker_id != MASTER_ID
    return calls.RegisterBrokerReply(
        master_addr=leader.address if leader and follows else None,
        ha_server_addr=leader.ha_address if leader and follows else None,
        body=codec.dumps(KVTable(table=dict(state.kv_store.all(ORDER_NAMESPACE)))),
    )


def unregister(state: NameServerState, call: calls.UnregisterBroker, _peer: Peer) -> Reply:
    """Remove a broker that stops."""
    if broker_key := state.brokers.key_of(call.broker_name, call.broker_addr):
        state.brokers.forget([broker_key], "leaves")
    return Reply()


def heartbeat(state: NameServerState, call: calls.BrokerHeartbeat, _peer: Peer) -> Reply:
    """Note a sign of life of a broker."""
    if broker_key := state.brokers.key_of(call.broker_name, call.broker_addr):
        now_ms = state.clock.monotonic_ms()
        state.brokers.spoke(broker_key, now_ms, call.heartbeat_timeout_mills)
    return Reply()


def data_version(
    state: NameServerState, call: calls.QueryDataVersion, _peer: Peer
) -> calls.DataVersionReply:
    """Whether a broker has to register again; if not, this counts as a sign of life."""
    broker_key = state.brokers.key_of(call.broker_name, call.broker_addr)
    if broker_key is None:
        return calls.DataVersionReply(changed=True)
    held = state.brokers.registrations[broker_key].version
    changed = decode_body(call.body, DataVersion) != held
    if not changed:
        state.brokers.spoke(broker_key, state.clock.monotonic_ms())
    return calls.DataVersionReply(changed=changed, body=codec.dumps(held))


def members(state: NameServerState, call: GetBrokerMembers, _peer: Peer) -> Reply:
    """The addresses of the brokers of one name."""
    addresses = routing.members(state.brokers.registrations, call.broker_name)
    group = BrokerMembers(
        cluster=call.cluster_name, broker_name=call.broker_name, broker_addrs=addresses
    )
    return Reply(body=codec.dumps(BrokerMembersBody(broker_member_group=group)))


def _registration(call: calls.RegisterBroker, body: RegisterBrokerBody) -> BrokerRegistration:
    wrapper = body.topic_config_serialize_wrapper
    return BrokerRegistration(
        cluster=call.cluster_name,
        broker_name=call.broker_name,
        broker_id=call.broker_id,
        address=call.broker_addr,
        ha_address=call.ha_server_addr,
        enable_acting_master=call.enable_acting_master,
        version=wrapper.data_version,
        topics=wrapper.topic_config_table,
        filter_servers=tuple(body.filter_server_list),
    )
