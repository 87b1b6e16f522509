"""Handlers of the broker by call type: packages by purpose, one module per kind of request."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from roquet.broker.broker import BrokerHandler
from roquet.broker.handlers.admin.access import AccessHandler
from roquet.broker.handlers.admin.cleaning import CleaningHandler
from roquet.broker.handlers.admin.client_forwarding import ClientForwardingHandler
from roquet.broker.handlers.admin.cold_reads import ColdReadsHandler
from roquet.broker.handlers.admin.group import GroupHandler
from roquet.broker.handlers.admin.inspection import InspectionHandler
from roquet.broker.handlers.admin.replication import ReplicationHandler
from roquet.broker.handlers.admin.reset import ResetHandler
from roquet.broker.handlers.admin.runtime import RuntimeHandler
from roquet.broker.handlers.admin.settings import SettingsHandler
from roquet.broker.handlers.admin.stats import StatsHandler
from roquet.broker.handlers.admin.topic import TopicHandler
from roquet.broker.handlers.groups.assignment import AssignmentHandler
from roquet.broker.handlers.groups.heartbeat import HeartbeatHandler
from roquet.broker.handlers.groups.lock import LockHandler
from roquet.broker.handlers.groups.offset import OffsetHandler
from roquet.broker.handlers.messages.ack import AckHandler
from roquet.broker.handlers.messages.pop import PopHandler
from roquet.broker.handlers.messages.pull import PullHandler
from roquet.broker.handlers.messages.query import QueryHandler
from roquet.broker.handlers.messages.reply import ReplyHandler
from roquet.broker.handlers.messages.send import SendHandler
from roquet.broker.handlers.messages.send_back import SendBackHandler
from roquet.broker.handlers.messages.timer import TimerHandler
from roquet.broker.handlers.messages.transaction import TransactionHandler
from roquet.wire.call import Call
from roquet.wire.calls import access as access_calls
from roquet.wire.calls import heartbeat as heartbeat_calls
from roquet.wire.calls import offset as offset_calls
from roquet.wire.calls import pop as pop_calls
from roquet.wire.calls import pull as pull_calls
from roquet.wire.calls import query as query_calls
from roquet.wire.calls import replication as replication_calls
from roquet.wire.calls import reply as reply_calls
from roquet.wire.calls import send as send_calls
from roquet.wire.calls import timer as timer_calls
from roquet.wire.calls import transaction as transaction_calls
from roquet.wire.calls.admin import client_forwarding as forwarding_calls
from roquet.wire.calls.admin import group as group_calls
from roquet.wire.calls.admin import inspection as inspection_calls
from roquet.wire.calls.admin import offset_reset as reset_calls
from roquet.wire.calls.admin import settings as settings_calls
from roquet.wire.calls.admin import stats as stats_calls
from roquet.wire.calls.admin import topic as topic_calls

HANDLERS: Final[Mapping[type[Call[Any]], BrokerHandler]] = MappingProxyType(
    {
        send_calls.Send: SendHandler.send,
        send_calls.SendLongNames: SendHandler.send,
        send_calls.SendBatch: SendHandler.send,
        send_calls.SendBack: SendBackHandler.send_back,
        reply_calls.SendReplyMessage: ReplyHandler.reply,
        reply_calls.SendReplyLongNames: ReplyHandler.reply,
        pop_calls.Pop: PopHandler.pop,
        pop_calls.Peek: PopHandler.peek,
        pop_calls.Notification: PopHandler.notification,
        pop_calls.PollingInfo: PopHandler.polling_info,
        pop_calls.Ack: AckHandler.ack,
        pop_calls.BatchAck: AckHandler.batch_ack,
        pop_calls.ChangeInvisible: AckHandler.change_invisible,
        pull_calls.Pull: PullHandler.pull,
        pull_calls.LitePull: PullHandler.pull,
        offset_calls.QueryOffset: OffsetHandler.query,
        offset_calls.UpdateOffset: OffsetHandler.update,
        offset_calls.MaxOffset: OffsetHandler.maximum,
        offset_calls.MinOffset: OffsetHandler.minimum,
        offset_calls.OffsetByTime: OffsetHandler.by_time,
        offset_calls.EarliestTime: OffsetHandler.earliest_time,
        heartbeat_calls.Heartbeat: HeartbeatHandler.heartbeat,
        heartbeat_calls.Unregister: HeartbeatHandler.unregister,
        heartbeat_calls.GetConsumers: HeartbeatHandler.consumers,
        heartbeat_calls.CheckSubscription: HeartbeatHandler.check_subscription,
        heartbeat_calls.LockQueues: LockHandler.lock,
        heartbeat_calls.UnlockQueues: LockHandler.unlock,
        heartbeat_calls.QueryAssignment: AssignmentHandler.query,
        heartbeat_calls.SetRequestMode: AssignmentHandler.set_mode,
        forwarding_calls.GetRunningInfo: ClientForwardingHandler.running_info,
        forwarding_calls.ConsumeDirectly: ClientForwardingHandler.consume_directly,
        group_calls.GetConnections: GroupHandler.connections,
        group_calls.GetConsumeStats: GroupHandler.stats,
        inspection_calls.GetProducers: InspectionHandler.producers,
        inspection_calls.GetAllProducers: InspectionHandler.all_producers,
        inspection_calls.GetGroupsOfTopic: InspectionHandler.groups_of_topic,
        inspection_calls.GetTopicsOfGroup: InspectionHandler.topics_of_group,
        inspection_calls.GetSubscription: InspectionHandler.subscription,
        inspection_calls.GetSystemTopics: InspectionHandler.system_topics,
        inspection_calls.GetEntries: InspectionHandler.entries,
        inspection_calls.GetAllOffsets: InspectionHandler.all_offsets,
        inspection_calls.GetDelayOffsets: InspectionHandler.delay_offsets,
        inspection_calls.GetRequestModes: InspectionHandler.request_modes,
        stats_calls.GetTopicStats: StatsHandler.topic_stats,
        stats_calls.GetTimeSpan: StatsHandler.time_span,
        stats_calls.GetCorrections: StatsHandler.corrections,
        stats_calls.ViewStats: StatsHandler.view,
        stats_calls.GetAllConsumeStats: StatsHandler.all_consume_stats,
        stats_calls.GetHaStatus: StatsHandler.ha_status,
        stats_calls.GetEpochs: StatsHandler.epochs,
        replication_calls.NotifyRoleChanged: ReplicationHandler.role_changed,
        replication_calls.ExchangeHaInfo: ReplicationHandler.exchange_ha_info,
        stats_calls.GetRuntimeInfo: RuntimeHandler.runtime_info,
        timer_calls.Recall: TimerHandler.recall,
        timer_calls.GetTimerCheckpoint: TimerHandler.checkpoint,
        timer_calls.GetTimerMetrics: TimerHandler.metrics,
        query_calls.QueryByKey: QueryHandler.by_key,
        query_calls.ViewMessage: QueryHandler.by_position,
        transaction_calls.EndTransaction: TransactionHandler.end,
        transaction_calls.ResumeCheck: TransactionHandler.resume,
        topic_calls.CreateTopic: TopicHandler.create_topic,
        topic_calls.CreateTopics: TopicHandler.create_topics,
        topic_calls.DeleteTopic: TopicHandler.delete_topic,
        topic_calls.GetTopics: TopicHandler.topics,
        topic_calls.GetTopic: TopicHandler.topic,
        topic_calls.CreateGroup: TopicHandler.create_group,
        topic_calls.CreateGroups: TopicHandler.create_groups,
        topic_calls.DeleteGroup: TopicHandler.delete_group,
        topic_calls.ForbidGroup: TopicHandler.forbid_group,
        settings_calls.SetColdReadLimits: ColdReadsHandler.put_limits,
        settings_calls.RemoveColdReadLimit: ColdReadsHandler.remove_limit,
        settings_calls.GetColdReadLimits: ColdReadsHandler.limits,
        settings_calls.SetReadAhead: ColdReadsHandler.read_ahead,
        settings_calls.UpdateSettings: SettingsHandler.update,
        settings_calls.GetSettings: SettingsHandler.settings,
        reset_calls.ResetOffset: ResetHandler.reset,
        reset_calls.GetGroupStatus: ResetHandler.status,
        reset_calls.CloneOffsets: ResetHandler.clone,
        settings_calls.CleanQueues: CleaningHandler.clean_queues,
        settings_calls.CleanTopics: CleaningHandler.clean_topics,
        settings_calls.DeleteExpired: CleaningHandler.delete_expired,
        topic_calls.GetGroups: TopicHandler.groups,
        topic_calls.GetGroup: TopicHandler.group,
        access_calls.CreateUser: AccessHandler.create_user,
        access_calls.UpdateUser: AccessHandler.update_user,
        access_calls.DeleteUser: AccessHandler.delete_user,
        access_calls.GetUser: AccessHandler.get_user,
        access_calls.ListUsers: AccessHandler.list_users,
        access_calls.CreateAcl: AccessHandler.change_acl,
        access_calls.UpdateAcl: AccessHandler.change_acl,
        access_calls.DeleteAcl: AccessHandler.delete_acl,
        access_calls.GetAcl: AccessHandler.get_acl,
        access_calls.ListAcls: AccessHandler.list_acls,
    }
)
"""The handler of each call."""

NOT_SERVED: Final[frozenset[type[Call[Any]]]] = frozenset(
    {
        heartbeat_calls.ConsumersChanged,
        reply_calls.PushReply,
        transaction_calls.CheckTransactionState,
        reset_calls.ResetClientOffset,
        reset_calls.GetClientStatus,
    }
)
"""Calls that clients serve: brokers send them."""
