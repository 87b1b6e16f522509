"""Routes, broker registration and key-value settings: calls to the name server."""

from typing import ClassVar

from roquet.wire.call import Call, Int, Long, Reply
from roquet.wire.codes import RequestCode


class GetRoute(Call[Reply], frozen=True, kw_only=True):
    """Get a topic's brokers and queues; the reply's body is a TopicRoute."""

    code: ClassVar = RequestCode.GET_ROUTEINFO_BY_TOPIC

    topic: str
    accept_standard_json_only: bool | None = None


class RegisterBrokerReply(Reply, frozen=True, kw_only=True):
    """Leader of this broker's group; the body is a table of ordered topics."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


class RegisterBroker(Call[RegisterBrokerReply], frozen=True, kw_only=True):
    """Register a broker's address and topics; the body is a RegisterBrokerBody."""

    code: ClassVar = RequestCode.REGISTER_BROKER

    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str = ""
    broker_id: Long
    heartbeat_timeout_millis: Long | None = None
    enable_acting_master: bool | None = None
    compressed: bool = False
    body_crc32: Int = 0


class UnregisterBroker(Call[Reply], frozen=True, kw_only=True):
    """A broker leaves."""

    code: ClassVar = RequestCode.UNREGISTER_BROKER

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Long


class BrokerHeartbeatReply(Reply, frozen=True, kw_only=True):
    """Reply to a heartbeat; brokers of Apache send heartbeats one way."""

    lease_millis: Long | None = None
    """Ours: length of the granted lease, counted from when the heartbeat was sent; None: the
    heartbeat did not ask for one."""


class BrokerHeartbeat(Call[BrokerHeartbeatReply], frozen=True, kw_only=True):
    """A broker reports that it is alive, to name servers and controllers.

    A controller compares candidates by `epoch` to `election_priority`; name servers ignore them.
    The fields after these are ours: a master asks for a lease with `lease_epoch` and
    `waits_for_all` (`rules.election.lease`). A controller that does not grant it refuses the
    heartbeat, with the code of the reason, and has noted that the broker is alive; but with
    CONTROLLER_BROKER_NEED_TO_BE_REGISTERED the sender is a stranger, and is not noted.
    """

    code: ClassVar = RequestCode.BROKER_HEARTBEAT

    cluster_name: str
    broker_addr: str
    broker_name: str
    broker_id: Long | None = None
    heartbeat_timeout_mills: Long | None = None
    epoch: Int | None = None
    """Last epoch of its log; -1 without any."""
    max_offset: Long | None = None
    """Position of the log's end."""
    confirm_offset: Long | None = None
    """Position up to which all replicas in sync have the log."""
    election_priority: Int | None = None
    """Lower wins among equals."""
    lease_epoch: Int | None = None
    """Epoch in which the sender leads and asks for a lease; None asks for none."""
    waits_for_all: bool | None = None
    """Whether every acknowledgement in this epoch waits for the whole sync-state set."""
    releases_lease: bool | None = None
    """Whether the sender, just started or about to stop, acknowledges nothing in any epoch until it
    is granted a lease again."""
    is_learner: bool | None = None
    """Whether the sender only learns: it is not elected unless an operator names it."""
    logs_needed: Int | None = None
    """Number of logs that have to hold a message before the sender, if it leads, acknowledges it;
    None: those of the whole set."""
    sync_state_set: str | None = None
    """Ids of the sync-state set that a master knows, with commas between them."""
    sync_state_set_epoch: Int | None = None
    """Version of that set."""
    obeyed_epoch: Int | None = None
    """Latest epoch that the sender has been told of: its log may have no message of it yet."""


class DataVersionReply(Reply, frozen=True, kw_only=True):
    """Whether the name server's table differs; the body is its own DataVersion."""

    changed: bool


class QueryDataVersion(Call[DataVersionReply], frozen=True, kw_only=True):
    """Compare the version of the broker's topics; the body is a DataVersion."""

    code: ClassVar = RequestCode.QUERY_DATA_VERSION

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Long


class GetClusterInfo(Call[Reply], frozen=True, kw_only=True):
    """All brokers and clusters; the reply's body is a ClusterInfo."""

    code: ClassVar = RequestCode.GET_BROKER_CLUSTER_INFO


class GetAllTopics(Call[Reply], frozen=True, kw_only=True):
    """The names of all topics; the reply's body is a TopicList."""

    code: ClassVar = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER


class PutKV(Call[Reply], frozen=True, kw_only=True):
    """Store a value."""

    code: ClassVar = RequestCode.PUT_KV_CONFIG

    namespace: str
    key: str
    value: str


class ValueReply(Reply, frozen=True, kw_only=True):
    """One value."""

    value: str | None = None


class GetKV(Call[ValueReply], frozen=True, kw_only=True):
    """Get a stored value; QUERY_NOT_FOUND if there is none."""

    code: ClassVar = RequestCode.GET_KV_CONFIG

    namespace: str
    key: str


class DeleteKV(Call[Reply], frozen=True, kw_only=True):
    """Delete a stored value."""

    code: ClassVar = RequestCode.DELETE_KV_CONFIG

    namespace: str
    key: str


class ListKV(Call[Reply], frozen=True, kw_only=True):
    """All values of a namespace; the reply's body is a KVTable."""

    code: ClassVar = RequestCode.GET_KVLIST_BY_NAMESPACE

    namespace: str
