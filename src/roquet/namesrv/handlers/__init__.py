"""Call to reply: what a name server answers."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from roquet.namesrv.handlers import registration, settings, topics, values
from roquet.namesrv.state import State
from roquet.net.router import Answer, Peer
from roquet.wire.call import Call
from roquet.wire.calls import namesrv as admin
from roquet.wire.calls import route as calls

HANDLERS: Final[Mapping[type[Call[Any]], Callable[[State, Any, Peer], Answer]]] = MappingProxyType(
    {
        calls.RegisterBroker: registration.register,
        calls.UnregisterBroker: registration.unregister,
        calls.BrokerHeartbeat: registration.heartbeat,
        calls.QueryDataVersion: registration.data_version,
        admin.GetMembers: registration.members,
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
        calls.PutKV: values.put_value,
        calls.GetKV: values.get_value,
        calls.DeleteKV: values.delete_value,
        calls.ListKV: values.list_values,
        admin.GetNameServerSettings: settings.settings,
        admin.UpdateNameServerSettings: settings.update,
    }
)
"""What a name server answers."""
