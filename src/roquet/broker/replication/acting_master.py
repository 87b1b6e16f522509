"""ActingMaster: whether this replica stands in for the master of its group, which is away.

    name servers ◀── who is alive? ── each second
         └──▶ the master       ──▶ this is a replica like any other
         └──▶ only replicas    ──▶ the lowest id acts: consumers read, commit and lock there

It takes no messages and delivers none: delayed, timed and popped messages, and transactions, wait
for the master. Only where roles are fixed, and with the setting `acting_master` at all brokers of
the group. Source: Apache RocketMQ 5.5.0, BrokerController.syncBrokerMemberGroup.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from roquet.broker.replication.role import Role, RoleCell
from roquet.broker.settings.config import BrokerConfig
from roquet.broker.settings.runtime_settings import RuntimeSettings
from roquet.log_records import logger
from roquet.model.errors import CallError, FieldError
from roquet.model.topic import MASTER_ID
from roquet.net.pool import ChannelPool
from roquet.rules.replication.role_change import acts_as_master
from roquet.wire.calls.admin.namesrv import BrokerMembersBody, GetBrokerMembers
from roquet.wire.fastjson import codec

log = logger(__name__)

LOOK_MS: Final = 1_000
"""Ms between two questions who is alive, as with Apache's brokers."""

TIMEOUT_MS: Final = 1_000
"""Timeout of the question in ms."""


class ActingMaster:
    """Whether this replica acts as master now."""

    def __init__(self, settings: RuntimeSettings, role: RoleCell) -> None:
        self._settings = settings
        self._role = role
        self.is_acting = False
        self.on_change: list[Callable[[], object]] = []
        """Each is called after a change, in the order of subscription."""
        self.on_outdated: list[Callable[[], object]] = []
        """Each is called when the role does not say what name servers know of the master."""
        role.on_change.append(self._follow_role)

    def _follow_role(self, _before: Role, role: Role) -> None:
        if role.is_master:
            self._act(is_acting=False)

    async def step(self, pool: ChannelPool) -> None:
        """Ask name servers who is alive; while none of them answers nothing changes."""
        if self._role.current.is_master:
            return
        members = await group_members(self._settings, pool)
        role = self._role.current
        if members is None or role.is_master:
            return
        self._act(is_acting=acts_as_master(members, role.broker_id))
        if (MASTER_ID in members) != (role.master is not None):
            for callback in self.on_outdated:
                callback()

    def _act(self, *, is_acting: bool) -> None:
        if is_acting == self.is_acting:
            return
        self.is_acting = is_acting
        if is_acting:
            log.warning("the master is away: consumers read, commit and lock at this replica")
        else:
            log.warning("this replica does not act as master any more")
        for callback in self.on_change:
            callback()


async def group_members(settings: RuntimeSettings, pool: ChannelPool) -> Mapping[int, str] | None:
    """Addresses of the brokers of this name that any name server knows, by id.

    None while no name server answers.
    """
    config = settings.config
    answers = await asyncio.gather(
        *(_members(server, config, pool) for server in config.name_servers)
    )
    known = [answer for answer in answers if answer is not None]
    if not known:
        return None
    return {broker_id: address for answer in known for broker_id, address in answer.items()}


async def _members(
    server: str, config: BrokerConfig, pool: ChannelPool
) -> Mapping[int, str] | None:
    call = GetBrokerMembers(cluster_name=config.cluster_name, broker_name=config.broker_name)
    try:
        reply = await pool.call(server, call, TIMEOUT_MS)
        group = codec.loads(reply.body, BrokerMembersBody).broker_member_group
    except (CallError, FieldError) as error:
        log.debug("name server %s does not say who is alive: %s", server, error)
        return None
    return {} if group is None else group.broker_addrs
