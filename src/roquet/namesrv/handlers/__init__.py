"""The handlers of a name server, by call type."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from roquet.namesrv.handlers import kv, registration, settings, topics
from roquet.namesrv.state import NameServerState
from roquet.net.router import HandlerReply, Peer
from roquet.wire.call import Call
from roquet.wire.calls import route as calls
from roquet.wire.calls.admin import namesrv as admin

HANDLERS: Final[Mapping[type[Call[Any]], Callable[[NameServerState, Any, Peer], HandlerReply]]] = (
    MappingProxyType(
        {
            calls.RegisterBroker: registration.register,
            calls.UnregisterBroker: registration.unregister,
            calls.BrokerHeartbeat: registration.heartbeat,
            calls.QueryDataVersion: registration.data_version,
            admin.GetBrokerMembers: registration.members,
            calls.GetRoute: topics.route,
            calls.GetClusterInfo: topics.cluster,
            calls.GetAllTopics: topics.all_topics,
            admin.TopicsOfCluster: topics.topics_of_cluster,
            admin.SystemTopics: topics.system_topics,
            admin.UnitTopics: topics.unit_topics,
            admin.UnitSubscribedTopics: topics.unit_subscribed,
            admin.OthersSubscribedTopics: topics.others_subscribed,
            admin.WipeWritePermission: topics.wipe,
            admin.AddWritePermission: topics.permit,
            admin.ForgetTopic: topics.forget,
            admin.RegisterTopic: topics.register,
            calls.PutKV: kv.put_value,
            calls.GetKV: kv.get_value,
            calls.DeleteKV: kv.delete_value,
            calls.ListKV: kv.list_values,
            admin.GetNameServerSettings: settings.settings,
            admin.UpdateNameServerSettings: settings.update,
        }
    )
)
"""The handler of each call."""
