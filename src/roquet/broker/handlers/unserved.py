"""Unserved: requests of the protocol that are not served, and the reasons.

The reply is REQUEST_CODE_NOT_SUPPORTED, with the reason after the genuine broker's remark.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from roquet.wire.codes import RequestCode as Code

DEAD: Final = "no Apache RocketMQ answers it either: a number without a handler"
REPLICAS: Final = (
    "told where a replica acts as master: ours asks name servers each second, and hands nothing on "
    "to another master (no escape)"
)
CONTROLLER: Final = "asked of a controller, or by one, and this is a broker: see roquet controller"
ROCKSDB: Final = "about the RocksDB of a genuine broker: queues and tables are plain files here"
LITE: Final = "about lite topics, of which Roquet has none"

_DEAD: Final = (
    Code.QUERY_BROKER_OFFSET,
    Code.GET_TOPIC_CONFIG_LIST,
    Code.GET_TOPIC_NAME_LIST,
    Code.TRIGGER_DELETE_FILES,
    Code.GET_CLIENT_CONFIG,
    Code.SUSPEND_CONSUMER,
    Code.RESUME_CONSUMER,
    Code.RESET_CONSUMER_OFFSET_IN_CONSUMER,
    Code.RESET_CONSUMER_OFFSET_IN_BROKER,
    Code.ADJUST_CONSUMER_THREAD_POOL,
    Code.WHO_CONSUME_THE_MESSAGE,
    Code.REGISTER_FILTER_SERVER,
    Code.REGISTER_MESSAGE_FILTER_CLASS,
)
_REPLICAS: Final = (Code.NOTIFY_MIN_BROKER_ID_CHANGE, Code.RESET_MASTER_FLUSH_OFFSET)
_CONTROLLER: Final = (
    Code.CONTROLLER_ALTER_SYNC_STATE_SET,
    Code.CONTROLLER_ELECT_MASTER,
    Code.CONTROLLER_REGISTER_BROKER,
    Code.CONTROLLER_GET_REPLICA_INFO,
    Code.CONTROLLER_GET_METADATA_INFO,
    Code.CONTROLLER_GET_SYNC_STATE_DATA,
    Code.UPDATE_CONTROLLER_CONFIG,
    Code.GET_CONTROLLER_CONFIG,
    Code.CLEAN_BROKER_DATA,
    Code.CONTROLLER_GET_NEXT_BROKER_ID,
    Code.CONTROLLER_APPLY_BROKER_ID,
)
_ROCKSDB: Final = (Code.CHECK_ROCKSDB_CQ_WRITE_PROGRESS, Code.EXPORT_ROCKSDB_CONFIG_TO_JSON)
_LITE: Final = (
    Code.POP_LITE_MESSAGE,
    Code.LITE_SUBSCRIPTION_CTL,
    Code.ACK_LITE_MESSAGE,
    Code.NOTIFY_UNSUBSCRIBE_LITE,
    Code.GET_BROKER_LITE_INFO,
    Code.GET_PARENT_TOPIC_INFO,
    Code.GET_LITE_TOPIC_INFO,
    Code.GET_LITE_CLIENT_INFO,
    Code.GET_LITE_GROUP_INFO,
    Code.TRIGGER_LITE_DISPATCH,
)

UNSERVED: Final[Mapping[Code, str]] = MappingProxyType(
    {
        **dict.fromkeys(_DEAD, DEAD),
        **dict.fromkeys(_REPLICAS, REPLICAS),
        **dict.fromkeys(_CONTROLLER, CONTROLLER),
        **dict.fromkeys(_ROCKSDB, ROCKSDB),
        **dict.fromkeys(_LITE, LITE),
        Code.UPDATE_AND_CREATE_STATIC_TOPIC: (
            "queues here belong to the broker that holds their messages: no topic is spread over "
            "several by a table"
        ),
        Code.ADD_BROKER: "asked of a container of brokers: one process is one broker here",
        Code.REMOVE_BROKER: "asked of a container of brokers: one process is one broker here",
        Code.SWITCH_TIMER_ENGINE: "there is one engine for timers here, on plain files",
        Code.POP_ROLLBACK: (
            "copies a genuine broker's table of pops from its RocksDB into its log: pops are noted "
            "in the log here"
        ),
    }
)
"""Why each of these is answered with REQUEST_CODE_NOT_SUPPORTED."""
