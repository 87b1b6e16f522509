"""EtcdStore: groups in etcd, for two or more controllers of which one leads.

    /roquet/<group of controllers>/leader          identity of the leader   bound to its etcd lease
    /roquet/<group of controllers>/members/<id>    identity of a controller bound to its etcd lease
    /roquet/<group of controllers>/groups/<name>   a group, as JSON

A term is the revision in which the leader's key was created. Every write is a transaction that
compares this revision, the key's etcd lease and the revision of the group, and `confirm` reads the
key through etcd's quorum, so no clock decides who leads: the etcd lease only says when the key of a
dead leader disappears.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from roquet.controller.state_store.etcd_gateway import (
    EtcdGateway,
    KeepAliveResponse,
    KeyValue,
    LeaseResponse,
    RangeResponse,
    TransactionResponse,
    encoded,
    range_of,
)
from roquet.controller.state_store.interface import (
    ControllerIdentity,
    LeadershipLost,
    LeadershipView,
    StateStoreError,
    StoredGroup,
)
from roquet.rules.election.group import ReplicaGroup

LEASE_SECONDS: Final = 4
"""Length of the etcd lease: a dead leader is replaced within it and one `acquire` more. etcd grants
at least twice its election time-out, 2 s by default."""

ROOT: Final = "/roquet"


class EtcdStore:
    """Groups in etcd; `controllers` names the controllers that share them."""

    def __init__(
        self, gateway: EtcdGateway, controllers: str, lease_seconds: int = LEASE_SECONDS
    ) -> None:
        self._gateway = gateway
        self._lease_seconds = lease_seconds
        self._lease_id = 0
        """0: none has been granted, or it has ended."""
        prefix = f"{ROOT}/{controllers}"
        self._leader_key = f"{prefix}/leader"
        self._members = f"{prefix}/members/"
        self._groups = f"{prefix}/groups/"

    async def acquire(
        self, identity: ControllerIdentity, *, in_new_term: bool = False
    ) -> LeadershipView:
        """See StateStore."""
        await self._renew(identity)
        view = await self._campaign(identity)
        if view.term is None or not in_new_term:
            return view
        key = encoded(self._leader_key)
        remove = [{"request_delete_range": {"key": key}}]
        await self._transaction(self._leads(view.term), remove, [])
        return await self._campaign(identity)

    async def _campaign(self, identity: ControllerIdentity) -> LeadershipView:
        """Create the leader's key unless there is one, and read it.

        Where there is one nothing is written: etcd keeps every revision until it is compacted, and
        a leader goes on while etcd has no space for more.
        """
        pairs = await self._leader_and_members()
        if self._leader_key not in pairs:
            value = msgspec.json.encode(identity).decode()
            put = self._put(self._leader_key, value, self._lease_id)
            await self._transaction([_created(self._leader_key, 0)], [put], [])
            pairs = await self._leader_and_members()
        leader = pairs.pop(self._leader_key, None)
        if leader is None:  # its lease has ended since
            raise StateStoreError("the leader's key in etcd is gone already", definite=True)
        return LeadershipView(
            term=leader.create_revision if leader.lease == self._lease_id else None,
            leader=_decoded(leader, ControllerIdentity),
            peers=tuple(_decoded(peer, ControllerIdentity) for peer in pairs.values()),
        )

    async def _leader_and_members(self) -> dict[str, KeyValue]:
        """The leader's key and those of the members, which follow it in etcd's order."""
        request = {**range_of(self._members), "key": encoded(self._leader_key)}
        found = await self._gateway.call("/v3/kv/range", request, RangeResponse)
        is_ours = (self._leader_key, self._members)
        return {pair.name: pair for pair in found.kvs if pair.name.startswith(is_ours)}

    async def load(self, term: int) -> Mapping[str, StoredGroup]:
        """See StateStore."""
        read = [{"request_range": range_of(self._groups)}]
        result = await self._transaction(self._leads(term), read, [])
        if not result.succeeded:
            raise _lost()
        return {
            pair.name.removeprefix(self._groups): StoredGroup(
                _decoded(pair, ReplicaGroup), pair.mod_revision
            )
            for pair in result.responses[0].response_range.kvs
        }

    async def save(self, term: int, name: str, group: ReplicaGroup, revision: int) -> int:
        """See StateStore."""
        key = self._groups + name
        is_known = {"key": encoded(key), "target": "MOD", "mod_revision": str(revision)}
        result = await self._transaction(
            [*self._leads(term), is_known],
            [self._put(key, msgspec.json.encode(group).decode())],
            [],
        )
        if not result.succeeded:
            raise _lost()
        return result.header.revision

    async def confirm(self, term: int) -> None:
        """See StateStore. Its errors are definite: whatever happens, nothing is written."""
        request = {"key": encoded(self._leader_key)}
        try:
            found = await self._gateway.call("/v3/kv/range", request, RangeResponse)
        except StateStoreError as error:
            raise StateStoreError(str(error), definite=True) from error
        leaders = {(pair.create_revision, pair.lease) for pair in found.kvs}
        if (term, self._lease_id) not in leaders:
            raise _lost()

    async def close(self) -> None:
        """See StateStore."""
        lease_id, self._lease_id = self._lease_id, 0
        try:
            if lease_id:
                await self._gateway.call("/v3/lease/revoke", {"ID": str(lease_id)}, dict[str, Any])
        except StateStoreError:
            pass  # the lease ends by itself in a few seconds
        finally:
            await self._gateway.close()

    async def _renew(self, identity: ControllerIdentity) -> None:
        """Renew the etcd lease; a lost one is replaced by a new one with the member's key."""
        if self._lease_id:
            request = {"ID": str(self._lease_id)}
            renewed = await self._gateway.call("/v3/lease/keepalive", request, KeepAliveResponse)
            if renewed.result.ttl_s > 0:
                return
        lease = {"TTL": str(self._lease_seconds)}
        granted = await self._gateway.call("/v3/lease/grant", lease, LeaseResponse)
        member, value = self._members + identity.controller_id, msgspec.json.encode(identity)
        await self._transaction([], [self._put(member, value.decode(), granted.lease_id)], [])
        self._lease_id = granted.lease_id

    def _leads(self, term: int) -> list[dict[str, str]]:
        """Comparisons: this controller leads in a term.

        The term alone is not enough: an etcd that lost its data counts revisions anew.
        """
        key, lease = encoded(self._leader_key), str(self._lease_id)
        return [_created(self._leader_key, term), {"key": key, "target": "LEASE", "lease": lease}]

    async def _transaction(
        self, compare: list[Any], success: list[Any], failure: list[Any]
    ) -> TransactionResponse:
        request = {"compare": compare, "success": success, "failure": failure}
        return await self._gateway.call("/v3/kv/txn", request, TransactionResponse)

    def _put(self, key: str, value: str, lease_id: int = 0) -> dict[str, Any]:
        put = {"key": encoded(key), "value": encoded(value), "lease": str(lease_id)}
        return {"request_put": put}


def _created(key: str, revision: int) -> dict[str, str]:
    """Comparison: the key was created in this revision; 0: there is none."""
    return {"key": encoded(key), "target": "CREATE", "create_revision": str(revision)}


def _lost() -> LeadershipLost:
    return LeadershipLost("another controller leads, or the state was changed by somebody else")


def _decoded(pair: KeyValue, wanted: type[Any]) -> Any:
    try:
        return msgspec.json.decode(pair.data, type=wanted)
    except (msgspec.MsgspecError, ValueError) as error:
        raise StateStoreError(
            f"the value of {pair.name} in etcd is damaged ({error}): restore or delete it",
            definite=True,
        ) from error
