"""Heartbeats: brokers are alive, and masters of ours get their leases prolonged."""

import re
from collections.abc import Awaitable
from typing import Final

from roquet.controller.controller import Controller
from roquet.controller.leader_state import LeaderState
from roquet.controller.liveness import TIMEOUT_MS, LiveBroker
from roquet.controller.request_fields import check_broker_id, check_cluster, check_texts
from roquet.log_records import logger
from roquet.model.errors import CallRefused
from roquet.net.router import Peer
from roquet.rules.election.elect import PRIORITY_DEFAULT, Candidate
from roquet.rules.election.group import (
    REPLICAS_MAX,
    BrokerSite,
    Refusal,
    RefusalCode,
    ReplicaGroup,
    SetChange,
    misplaced,
    newer_set,
)
from roquet.rules.election.lease import LeaseRequest
from roquet.rules.liveness import SILENCE_MS_MAX, LastSeen
from roquet.wire.calls.route import BrokerHeartbeat, BrokerHeartbeatReply
from roquet.wire.codes import ResponseCode

log = logger(__name__)

GREETING = "Heart beat success"
"""Apache's remark."""

_ID: Final = re.compile(r"[0-9]{1,9}")


def heartbeat(
    controller: Controller, call: BrokerHeartbeat, peer: Peer
) -> BrokerHeartbeatReply | Awaitable[BrokerHeartbeatReply]:
    """Note a heartbeat. Only a lease needs a controller that leads.

    One that leads refuses strangers: brokers of another cluster, and those that are not where their
    id is registered.
    """
    if call.broker_id is None:
        remark = "a heartbeat to a controller has to have a brokerId"
        raise CallRefused(ResponseCode.CONTROLLER_INVALID_REQUEST, remark)
    check_broker_id(call.broker_id)
    check_texts(brokerName=call.broker_name, brokerAddr=call.broker_addr)
    check_cluster(call.cluster_name)
    state = controller.leadership.state
    group = None if state is None else state.group(call.broker_name)
    if state is not None:
        _check_site(controller, group, call)
    now_ms = controller.clock.monotonic_ms()
    broker = live_broker(call, peer, now_ms)
    _check_teller(controller, call, broker)
    is_member = group is not None and call.broker_id in group.replicas
    if not controller.liveness.note(call.broker_name, call.broker_id, broker, is_member=is_member):
        remark = "too many brokers are alive: this one is not noted"
        raise CallRefused(ResponseCode.SYSTEM_BUSY, remark)
    if call.releases_lease and state is not None:
        state.release(call.broker_name, call.broker_id, call.broker_addr)
    if call.lease_epoch is None:
        return BrokerHeartbeatReply(remark=GREETING)
    request = LeaseRequest(
        broker_id=call.broker_id,
        address=call.broker_addr,
        epoch=call.lease_epoch,
        waits_for_all=bool(call.waits_for_all),
        logs_needed=call.logs_needed,
        end=call.max_offset or 0,
        confirmed=call.confirm_offset or 0,
    )
    return _lease(controller, call.broker_name, request, known_set(call))


def _check_site(controller: Controller, group: ReplicaGroup | None, call: BrokerHeartbeat) -> None:
    """Raise CallRefused for a stranger; brokers of Apache do not read it, so it is logged, too."""
    assert call.broker_id is not None, "it was looked at"
    site = _site(call)
    refusal = None if group is None else misplaced(group, call.broker_id, site)
    if refusal is not None:
        controller.liveness.report_stranger(call.broker_name, call.broker_id, site, refusal.remark)
        raise CallRefused(refusal.code, refusal.remark)


def _check_teller(controller: Controller, call: BrokerHeartbeat, broker: LiveBroker) -> None:
    """Raise CallRefused for who speaks in the name of another, or of an epoch that never was."""
    assert call.broker_id is not None, "it was looked at"
    name, broker_id = call.broker_name, call.broker_id
    if controller.liveness.contest(name, broker_id, broker):
        remark = (
            f"another connection sends heartbeats as broker {broker_id} of {name} at"
            f" {broker.site.address}: it has to end before"
        )
        raise CallRefused(ResponseCode.CONTROLLER_INVALID_REQUEST, remark)
    if controller.elections.is_impossible(name, broker_id, broker.epoch):
        remark = (
            f"broker {broker_id} tells of epoch {broker.epoch}, to which nobody was elected in"
            f" {name}: start it in an empty directory, or keep this process out"
        )
        controller.liveness.report_stranger(name, broker_id, broker.site, remark)
        raise CallRefused(ResponseCode.CONTROLLER_INVALID_REQUEST, remark)


def _site(call: BrokerHeartbeat) -> BrokerSite:
    return BrokerSite(cluster=call.cluster_name, address=call.broker_addr)


def known_set(call: BrokerHeartbeat) -> SetChange | None:
    """Sync-state set that a master tells with its heartbeat; None without one that can be read."""
    ids = (call.sync_state_set or "").split(",")[: REPLICAS_MAX + 1]
    if call.sync_state_set_epoch is None or not all(_ID.fullmatch(one) for one in ids):
        return None
    assert call.broker_id is not None, "it was looked at"
    assert call.lease_epoch is not None, "a master asks for a lease"
    return SetChange(
        master=call.broker_id,
        master_epoch=call.lease_epoch,
        members=frozenset(map(int, ids)),
        set_version=call.sync_state_set_epoch,
    )


def live_broker(call: BrokerHeartbeat, peer: Peer, now_ms: int) -> LiveBroker:
    """A broker as its heartbeat describes it; absent fields have Apache's defaults."""
    limit_ms = call.heartbeat_timeout_mills or TIMEOUT_MS
    priority = call.election_priority
    return LiveBroker(
        site=_site(call),
        peer=peer,
        seen=LastSeen(seen_ms=now_ms, limit_ms=min(max(limit_ms, 1), SILENCE_MS_MAX)),
        candidate=Candidate(
            epoch=-1 if call.epoch is None else call.epoch,
            end=call.max_offset or 0,
            priority=PRIORITY_DEFAULT if priority is None else priority,
            heard_ms=now_ms,
            is_learner=bool(call.is_learner),
            logs_needed=call.logs_needed,
        ),
        epoch=max(call.epoch or 0, call.lease_epoch or 0, call.obeyed_epoch or 0),
        releases_lease=bool(call.releases_lease),
    )


async def _lease(
    controller: Controller, name: str, request: LeaseRequest, known: SetChange | None
) -> BrokerHeartbeatReply:
    state = controller.leadership.leader_state()
    group = state.group(name)
    if group is not None and controller.elections.is_outdated(name, of_members=True):
        remark = f"the controller's state of group {name} is older than its brokers"
        raise CallRefused(ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH, remark)
    if group is not None and known is not None and newer_set(group, known) != group:
        await _take_over(state, name, known)
    await state.grant(name, request)
    length_ms = controller.leadership.terms.length_ms
    return BrokerHeartbeatReply(remark=GREETING, lease_millis=length_ms)


async def _take_over(state: LeaderState, name: str, known: SetChange) -> None:
    """Store the set that a master knows, which is later than the stored one."""

    def decide(group: ReplicaGroup | None) -> ReplicaGroup | Refusal:
        remark = f"there is no group {name}"
        if group is None:
            return Refusal(RefusalCode.BROKER_NEED_TO_BE_REGISTERED, remark)
        return newer_set(group, known)

    group = await state.update(name, decide)
    log.error(
        "group %s: the stored sync-state set was older than the one of its master, %s, which is "
        "taken over: the state was lost and an old copy restored",
        name, sorted(group.in_sync),
    )  # fmt: skip
