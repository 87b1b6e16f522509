"""Controller: ids, masters and sync-state sets of brokers that replicate their logs.

A broker asks the controller that leads; only GetControllerMetadata and heartbeats (904,
`calls.route.BrokerHeartbeat`) go to every controller. One that does not lead refuses the others
with CONTROLLER_NOT_LEADER. Source: Apache RocketMQ 5.5.0, ControllerRequestProcessor.
"""

from typing import ClassVar, Final

import msgspec

from roquet.wire.call import Call, Int, Long, Reply
from roquet.wire.calls.admin.namesrv import BrokerMembers
from roquet.wire.codes import RequestCode, ResponseCode

NO_BROKER: Final = -1
"""Id in an ElectMaster that names no broker."""


class GetControllerMetadataReply(Reply, frozen=True, kw_only=True):
    """Members of the group of controllers, and the one that leads, if there is one."""

    group: str | None = None
    controller_leader_id: str | None = None
    controller_leader_address: str | None = None
    is_leader: bool = False
    """Whether the one that answers leads."""
    peers: str | None = None
    """`id:host:port;…`, or `host:port;…`."""


class GetControllerMetadata(Call[GetControllerMetadataReply], frozen=True, kw_only=True):
    """Find the controller that leads."""

    code: ClassVar = RequestCode.CONTROLLER_GET_METADATA_INFO


class GetNextBrokerIdReply(Reply, frozen=True, kw_only=True):
    """Id that the next new broker of a name may apply for, 1 for the first."""

    cluster_name: str | None = None
    broker_name: str | None = None
    next_broker_id: Long | None = None


class GetNextBrokerId(Call[GetNextBrokerIdReply], frozen=True, kw_only=True):
    """Ask for an id; it is not reserved."""

    code: ClassVar = RequestCode.CONTROLLER_GET_NEXT_BROKER_ID

    cluster_name: str
    broker_name: str


class ApplyBrokerIdReply(Reply, frozen=True, kw_only=True):
    """The id is the broker's for good."""

    cluster_name: str | None = None
    broker_name: str | None = None


class ApplyBrokerId(Call[ApplyBrokerIdReply], frozen=True, kw_only=True):
    """Apply for an id; CONTROLLER_BROKER_ID_INVALID if it has another check code."""

    code: ClassVar = RequestCode.CONTROLLER_APPLY_BROKER_ID

    cluster_name: str
    broker_name: str
    applied_broker_id: Long
    register_check_code: str
    """`address;millis` of the first attempt: the same code may apply again."""


class GetReplicaInfoReply(Reply, frozen=True, kw_only=True):
    """Master of a group, if it has one; the body is a SyncStateSet."""

    master_broker_id: Long | None = None
    master_address: str | None = None
    master_epoch: Int | None = None


class GetReplicaInfo(Call[GetReplicaInfoReply], frozen=True, kw_only=True):
    """Get the master of a broker name; CONTROLLER_BROKER_METADATA_NOT_EXIST without a group."""

    code: ClassVar = RequestCode.CONTROLLER_GET_REPLICA_INFO

    broker_name: str


class ElectMasterReply(GetReplicaInfoReply, frozen=True, kw_only=True):
    """Elected master, or the old one if it still leads; the body is an ElectMasterBody."""

    sync_state_set_epoch: Int | None = None


class ElectMaster(Call[ElectMasterReply], frozen=True, kw_only=True):
    """Elect a master: the best candidate, or exactly the named one."""

    code: ClassVar = RequestCode.CONTROLLER_ELECT_MASTER
    accepts: ClassVar = frozenset(
        {ResponseCode.SUCCESS, ResponseCode.CONTROLLER_MASTER_STILL_EXIST}
    )

    cluster_name: str = ""
    broker_name: str = ""
    broker_id: Long = NO_BROKER
    """Broker that asks; with `designate_elect`, the one to elect."""
    designate_elect: bool = False
    unclean: bool | None = None
    """Elect a broker outside the sync-state set rather than nobody, although acknowledged messages
    are lost. Ours only: Apache's controllers ignore it."""
    broker_epoch: int | None = None
    """Latest epoch that the asking broker knows, of its log or one that it obeys: a controller
    whose state was lost, and that has missed its heartbeats, elects nobody in an earlier one. Ours
    only, as above."""
    invoke_time: Long = 0
    """Wall clock of the sender, in ms."""


class RegisterWithControllerReply(ElectMasterReply, frozen=True, kw_only=True):
    """Master of the group, if it has one that is alive; the body is a SyncStateSet."""

    cluster_name: str | None = None
    broker_name: str | None = None


class RegisterWithController(Call[RegisterWithControllerReply], frozen=True, kw_only=True):
    """Report the address of a broker that has an id.

    CONTROLLER_BROKER_NEED_TO_BE_REGISTERED refuses an id that nobody applied for.
    """

    code: ClassVar = RequestCode.CONTROLLER_REGISTER_BROKER

    cluster_name: str
    broker_name: str
    broker_id: Long
    broker_address: str
    invoke_time: Long = 0


class AlterSyncStateSetReply(Reply, frozen=True, kw_only=True):
    """Version of the new set; the body is the SyncStateSet."""

    new_sync_state_set_epoch: Int


class AlterSyncStateSet(Call[AlterSyncStateSetReply], frozen=True, kw_only=True):
    """Replace the sync-state set of the sender's group; the body is a SyncStateSet.

    The body has the version that the sender knows, and the members that it wants. A refusal with a
    code of the controller (2000 and above) means that this request changed nothing; after any other
    error, and without a reply, the change may have been made.
    """

    code: ClassVar = RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET

    broker_name: str
    master_broker_id: Long
    master_epoch: Int
    invoke_time: Long = 0


class GetSyncStateData(Call[Reply], frozen=True, kw_only=True):
    """Get the replicas of several broker names, a JSON list in the body.

    The reply's body is a SyncStateData, or empty if there was no body.
    """

    code: ClassVar = RequestCode.CONTROLLER_GET_SYNC_STATE_DATA


class UpdateControllerSettings(Call[Reply], frozen=True, kw_only=True):
    """Change settings; the body is the text of a properties file."""

    code: ClassVar = RequestCode.UPDATE_CONTROLLER_CONFIG


class GetControllerSettings(Call[Reply], frozen=True, kw_only=True):
    """Get all settings; the reply's body is the text of a properties file."""

    code: ClassVar = RequestCode.GET_CONTROLLER_CONFIG


class CleanBrokerData(Call[Reply], frozen=True, kw_only=True):
    """Remove brokers from a group; CONTROLLER_INVALID_CLEAN_BROKER_METADATA while one is alive."""

    code: ClassVar = RequestCode.CLEAN_BROKER_DATA

    cluster_name: str | None = None
    broker_name: str
    broker_controller_ids_to_clean: str | None = None
    """Ids as `1;2`; the whole group without any."""
    is_clean_living_broker: bool = False
    invoke_time: Long = 0


class SyncStateSet(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Ids of the replicas in sync with their master, and the version of the set."""

    sync_state_set: list[Long] = []
    sync_state_set_epoch: int = 0


class ElectMasterBody(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Members of a group after an election (Java's ElectMasterResponseBody)."""

    broker_member_group: BrokerMembers | None = None
    """None where the old master still leads."""
    sync_state_set: list[Long] = []


class OperatorElectMasterBody(ElectMasterBody, frozen=True, kw_only=True, rename="camel"):
    """ElectMasterBody as an operator's program reads it: the members at the top level, too.

    mqadmin 5.5.0 takes the body for a BrokerMemberGroup, and refuses unquoted names in the fields
    that it skips; encode it with `standard=True`. Apache's own controller answers with an
    ElectMasterBody, which mqadmin cannot read: there the election happens, and the command fails.
    """

    cluster: str
    broker_name: str
    broker_addrs: dict[int, str]


class ReplicaIdentity(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One replica, as operators see it."""

    broker_name: str
    broker_id: Long
    broker_address: str
    alive: bool | None = None


class ReplicasInfo(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Master and replicas of one broker name."""

    master_broker_id: Long | None = None
    master_address: str | None = None
    master_epoch: int = 0
    sync_state_set_epoch: int = 0
    in_sync_replicas: list[ReplicaIdentity] = []
    not_in_sync_replicas: list[ReplicaIdentity] = []


class SyncStateData(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Replicas by broker name (Java's BrokerReplicasInfo)."""

    replicas_info_table: dict[str, ReplicasInfo] = {}
