"""Handlers of the broker by call type: packages by purpose, one module per kind of request."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from roquet.broker.broker import BrokerHandler
from roquet.broker.handlers.admin import (
    access,
    cleaning,
    client_forwarding,
    cold_reads,
    group,
    inspection,
    replication,
    reset,
    runtime,
    settings,
    stats,
    topic,
)
from roquet.broker.handlers.groups import assignment, heartbeat, lock, offset
from roquet.broker.handlers.messages import (
    ack,
    pop,
    pull,
    query,
    reply,
    send,
    send_back,
    timer,
    transaction,
)
from roquet.wire.call import Call
from roquet.wire.calls import access as access_calls
from roquet.wire.calls import assignment as assignment_calls
from roquet.wire.calls import heartbeat as heartbeat_calls
from roquet.wire.calls import lock as lock_calls
from roquet.wire.calls import offset as offset_calls
from roquet.wire.calls import pop as pop_calls
from roquet.wire.calls import pull as pull_calls
from roquet.wire.calls import query as query_calls
from roquet.wire.calls import replication as replication_calls
from roquet.wire.calls import reply as reply_calls
from roquet.wire.calls import send as send_calls
from roquet.wire.calls import timer as timer_calls
from roquet.wire.calls import transaction as transaction_calls
from roquet.wire.calls.admin import cleanup as cleanup_calls
from roquet.wire.calls.admin import client_forwarding as forwarding_calls
from roquet.wire.calls.admin import cold_reads as cold_reads_calls
from roquet.wire.calls.admin import group as group_calls
from roquet.wire.calls.admin import group_forbidden as forbidden_calls
from roquet.wire.calls.admin import inspection as inspection_calls
from roquet.wire.calls.admin import offset_reset as reset_calls
from roquet.wire.calls.admin import settings as settings_calls
from roquet.wire.calls.admin import stats as stats_calls
from roquet.wire.calls.admin import topic as topic_calls

HANDLERS: Final[Mapping[type[Call[Any]], BrokerHandler]] = MappingProxyType(
    {
        send_calls.Send: send.send,
        send_calls.SendLongNames: send.send,
        send_calls.SendBatch: send.send,
        send_calls.SendBack: send_back.send_back,
        reply_calls.SendReplyMessage: reply.reply,
        reply_calls.SendReplyLongNames: reply.reply,
        pop_calls.Pop: pop.pop,
        pop_calls.Peek: pop.peek,
        pop_calls.Notification: pop.notification,
        pop_calls.PollingInfo: pop.polling_info,
        pop_calls.Ack: ack.ack,
        pop_calls.BatchAck: ack.batch_ack,
        pop_calls.ChangeInvisible: ack.change_invisible,
        pull_calls.Pull: pull.pull,
        pull_calls.LitePull: pull.pull,
        offset_calls.QueryOffset: offset.query,
        offset_calls.UpdateOffset: offset.update,
        offset_calls.MaxOffset: offset.maximum,
        offset_calls.MinOffset: offset.minimum,
        offset_calls.OffsetByTime: offset.by_time,
        offset_calls.EarliestTime: offset.earliest_time,
        heartbeat_calls.Heartbeat: heartbeat.heartbeat,
        heartbeat_calls.Unregister: heartbeat.unregister,
        heartbeat_calls.GetConsumers: heartbeat.consumers,
        heartbeat_calls.CheckSubscription: heartbeat.check_subscription,
        lock_calls.LockQueues: lock.lock,
        lock_calls.UnlockQueues: lock.unlock,
        assignment_calls.QueryAssignment: assignment.query,
        assignment_calls.SetRequestMode: assignment.set_mode,
        forwarding_calls.GetRunningInfo: client_forwarding.running_info,
        forwarding_calls.ConsumeDirectly: client_forwarding.consume_directly,
        group_calls.GetConnections: group.connections,
        group_calls.GetConsumeStats: group.stats,
        inspection_calls.GetProducers: inspection.producers,
        inspection_calls.GetAllProducers: inspection.all_producers,
        inspection_calls.GetGroupsOfTopic: inspection.groups_of_topic,
        inspection_calls.GetTopicsOfGroup: inspection.topics_of_group,
        inspection_calls.GetSubscription: inspection.subscription,
        inspection_calls.GetSystemTopics: inspection.system_topics,
        inspection_calls.GetEntries: inspection.entries,
        inspection_calls.GetAllOffsets: inspection.all_offsets,
        inspection_calls.GetDelayOffsets: inspection.delay_offsets,
        inspection_calls.GetRequestModes: inspection.request_modes,
        stats_calls.GetTopicStats: stats.topic_stats,
        stats_calls.GetTimeSpan: stats.time_span,
        stats_calls.GetCorrections: stats.corrections,
        stats_calls.ViewStats: stats.view,
        stats_calls.GetAllConsumeStats: stats.all_consume_stats,
        stats_calls.GetHaStatus: stats.ha_status,
        stats_calls.GetEpochs: stats.epochs,
        replication_calls.NotifyRoleChanged: replication.role_changed,
        replication_calls.ExchangeHaInfo: replication.exchange_ha_info,
        stats_calls.GetRuntimeInfo: runtime.runtime_info,
        timer_calls.Recall: timer.recall,
        timer_calls.GetTimerCheckpoint: timer.checkpoint,
        timer_calls.GetTimerMetrics: timer.metrics,
        query_calls.QueryByKey: query.by_key,
        query_calls.ViewMessage: query.by_position,
        transaction_calls.EndTransaction: transaction.end,
        transaction_calls.ResumeCheck: transaction.resume,
        topic_calls.CreateTopic: topic.create_topic,
        topic_calls.CreateTopics: topic.create_topics,
        topic_calls.DeleteTopic: topic.delete_topic,
        topic_calls.GetTopics: topic.topics,
        topic_calls.GetTopic: topic.topic,
        topic_calls.CreateGroup: topic.create_group,
        topic_calls.CreateGroups: topic.create_groups,
        topic_calls.DeleteGroup: topic.delete_group,
        forbidden_calls.ForbidGroup: topic.forbid_group,
        cold_reads_calls.SetColdReadLimits: cold_reads.put_limits,
        cold_reads_calls.RemoveColdReadLimit: cold_reads.remove_limit,
        cold_reads_calls.GetColdReadLimits: cold_reads.limits,
        cold_reads_calls.SetReadAhead: cold_reads.read_ahead,
        settings_calls.UpdateSettings: settings.update,
        settings_calls.GetSettings: settings.settings,
        reset_calls.ResetOffset: reset.reset,
        reset_calls.GetGroupStatus: reset.status,
        reset_calls.CloneOffsets: reset.clone,
        cleanup_calls.CleanQueues: cleaning.clean_queues,
        cleanup_calls.CleanTopics: cleaning.clean_topics,
        cleanup_calls.DeleteExpired: cleaning.delete_expired,
        topic_calls.GetGroups: topic.groups,
        topic_calls.GetGroup: topic.group,
        access_calls.CreateUser: access.create_user,
        access_calls.UpdateUser: access.update_user,
        access_calls.DeleteUser: access.delete_user,
        access_calls.GetUser: access.get_user,
        access_calls.ListUsers: access.list_users,
        access_calls.CreateAcl: access.change_acl,
        access_calls.UpdateAcl: access.change_acl,
        access_calls.DeleteAcl: access.delete_acl,
        access_calls.GetAcl: access.get_acl,
        access_calls.ListAcls: access.list_acls,
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
