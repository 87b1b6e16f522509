"""Every class of the vectors is compared with one of ours, or has a reason why not."""

import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.for_each import for_each
from tests.vector_lines import vector_lines
from tests.wire.calls.conftest import agree

from roquet.wire.calls import (
    access,
    bodies,
    controller,
    heartbeat,
    offset,
    pop,
    pull,
    query,
    send,
    timer,
    transaction,
)
from roquet.wire.calls.admin import (
    client_forwarding,
    group,
    inspection,
    namesrv,
    offset_reset,
    settings,
    stats,
    topic,
)
from roquet.wire.fastjson import codec

HERE = Path(__file__).parent
VECTORS = HERE.parents[1] / "vectors"

STATIC = "topics spread over brokers by a table"
LITE = "lite topics"
CONTAINER = "several brokers in one process"
ROCKSDB = "RocksDB"
NO_CODE = "no code of the protocol carries it"

NOT_HERE: Mapping[str, str] = {
    r"TopicQueueMapping|TopicRemapping|LogicQueueMapping": STATIC,
    r"Lite|GetParentTopicInfo|SimpleSubscriptionData": LITE,
    r"^(Add|Remove)BrokerRequest": CONTAINER,
    r"Rocks[dD][bB]": ROCKSDB,
    r"RoleChangeNotifyEntry": "passed between the threads of a controller",
    r"InitConsumerOffset|RegisterOrderTopic|StatisticsMessages|ConsumeByWho|RollbackStats": NO_CODE,
    r"^(Customized|Exponential|Group)RetryPolicy$": "part of SubscriptionGroup: rules.delay",
}
"""Classes of features that Roquet does not have."""

HEADERS: list[tuple[str, Any]] = [
    ("GetConsumerRunningInfoRequestHeader", client_forwarding.GetRunningInfo),
    ("ConsumeMessageDirectlyResultRequestHeader", client_forwarding.ConsumeDirectly),
    ("GetConsumerConnectionListRequestHeader", group.GetConnections),
    ("GetConsumeStatsRequestHeader", group.GetConsumeStats),
    ("GetAllProducerInfoRequestHeader", inspection.GetAllProducers),
    ("GetProducerConnectionListRequestHeader", inspection.GetProducers),
    ("QueryConsumeQueueRequestHeader", inspection.GetEntries),
    ("QuerySubscriptionByConsumerRequestHeader", inspection.GetSubscription),
    ("QueryTopicConsumeByWhoRequestHeader", inspection.GetGroupsOfTopic),
    ("QueryTopicsByConsumerRequestHeader", inspection.GetTopicsOfGroup),
    ("WipeWritePermOfBrokerRequestHeader", namesrv.WipeWritePermission),
    ("WipeWritePermOfBrokerResponseHeader", namesrv.WipeWritePermissionReply),
    ("AddWritePermOfBrokerRequestHeader", namesrv.AddWritePermission),
    ("AddWritePermOfBrokerResponseHeader", namesrv.AddWritePermissionReply),
    ("DeleteTopicFromNamesrvRequestHeader", namesrv.ForgetTopic),
    ("RegisterTopicRequestHeader", namesrv.RegisterTopic),
    ("GetTopicsByClusterRequestHeader", namesrv.TopicsOfCluster),
    ("GetBrokerMemberGroupRequestHeader", namesrv.GetBrokerMembers),
    ("ResetOffsetRequestHeader", offset_reset.ResetClientOffset),
    ("GetConsumerStatusRequestHeader", offset_reset.GetClientStatus),
    ("ResetOffsetRequestHeader", offset_reset.ResetOffset),
    ("GetConsumerStatusRequestHeader", offset_reset.GetGroupStatus),
    ("CloneGroupOffsetRequestHeader", offset_reset.CloneOffsets),
    ("GetBrokerConfigResponseHeader", settings.SettingsReply),
    ("GetTopicStatsInfoRequestHeader", stats.GetTopicStats),
    ("GetConsumeStatsInBrokerHeader", stats.GetAllConsumeStats),
    ("QueryConsumeTimeSpanRequestHeader", stats.GetTimeSpan),
    ("QueryCorrectionOffsetHeader", stats.GetCorrections),
    ("ViewBrokerStatsDataRequestHeader", stats.ViewStats),
    ("CreateTopicRequestHeader", topic.CreateTopic),
    ("CreateTopicListRequestHeader", topic.CreateTopics),
    ("DeleteTopicRequestHeader", topic.DeleteTopic),
    ("GetAllSubscriptionGroupRequestHeader", topic.GetGroups),
    ("GetAllSubscriptionGroupResponseHeader", topic.GroupsReply),
    ("GetAllTopicConfigRequestHeader", topic.GetTopics),
    ("GetAllTopicConfigResponseHeader", topic.TopicsReply),
    ("GetTopicConfigRequestHeader", topic.GetTopic),
    ("DeleteSubscriptionGroupRequestHeader", topic.DeleteGroup),
    ("GetSubscriptionGroupConfigRequestHeader", topic.GetGroup),
    ("UpdateGroupForbiddenRequestHeader", topic.ForbidGroup),
    ("CreateUserRequestHeader", access.CreateUser),
    ("UpdateUserRequestHeader", access.UpdateUser),
    ("DeleteUserRequestHeader", access.DeleteUser),
    ("GetUserRequestHeader", access.GetUser),
    ("ListUsersRequestHeader", access.ListUsers),
    ("CreateAclRequestHeader", access.CreateAcl),
    ("UpdateAclRequestHeader", access.UpdateAcl),
    ("DeleteAclRequestHeader", access.DeleteAcl),
    ("GetAclRequestHeader", access.GetAcl),
    ("ListAclsRequestHeader", access.ListAcls),
    ("AlterSyncStateSetRequestHeader", controller.AlterSyncStateSet),
    ("AlterSyncStateSetResponseHeader", controller.AlterSyncStateSetReply),
    ("ApplyBrokerIdRequestHeader", controller.ApplyBrokerId),
    ("ApplyBrokerIdResponseHeader", controller.ApplyBrokerIdReply),
    ("CleanControllerBrokerDataRequestHeader", controller.CleanBrokerData),
    ("ElectMasterRequestHeader", controller.ElectMaster),
    ("ElectMasterResponseHeader", controller.ElectMasterReply),
    ("GetMetaDataResponseHeader", controller.GetControllerMetadataReply),
    ("GetNextBrokerIdRequestHeader", controller.GetNextBrokerId),
    ("GetNextBrokerIdResponseHeader", controller.GetNextBrokerIdReply),
    ("GetReplicaInfoRequestHeader", controller.GetReplicaInfo),
    ("GetReplicaInfoResponseHeader", controller.GetReplicaInfoReply),
    ("RegisterBrokerToControllerRequestHeader", controller.RegisterWithController),
    ("RegisterBrokerToControllerResponseHeader", controller.RegisterWithControllerReply),
    ("HeartbeatRequestHeader", heartbeat.Heartbeat),
    ("UnregisterClientRequestHeader", heartbeat.Unregister),
    ("UnregisterClientResponseHeader", heartbeat.Unregister.reply),
    ("GetConsumerListByGroupRequestHeader", heartbeat.GetConsumers),
    ("GetConsumerListByGroupResponseHeader", heartbeat.GetConsumers.reply),
    ("NotifyConsumerIdsChangedRequestHeader", heartbeat.ConsumersChanged),
    ("LockBatchMqRequestHeader", heartbeat.LockQueues),
    ("UnlockBatchMqRequestHeader", heartbeat.UnlockQueues),
    ("QueryConsumerOffsetRequestHeader", offset.QueryOffset),
    ("QueryConsumerOffsetResponseHeader", offset.OffsetReply),
    ("UpdateConsumerOffsetRequestHeader", offset.UpdateOffset),
    ("UpdateConsumerOffsetResponseHeader", offset.UpdateOffset.reply),
    ("GetMaxOffsetRequestHeader", offset.MaxOffset),
    ("GetMaxOffsetResponseHeader", offset.OffsetReply),
    ("GetMinOffsetRequestHeader", offset.MinOffset),
    ("GetMinOffsetResponseHeader", offset.OffsetReply),
    ("SearchOffsetRequestHeader", offset.OffsetByTime),
    ("SearchOffsetResponseHeader", offset.OffsetReply),
    ("GetEarliestMsgStoretimeRequestHeader", offset.EarliestTime),
    ("GetEarliestMsgStoretimeResponseHeader", offset.TimeReply),
    ("PopMessageRequestHeader", pop.Pop),
    ("PopMessageResponseHeader", pop.PopReply),
    ("AckMessageRequestHeader", pop.Ack),
    ("ChangeInvisibleTimeRequestHeader", pop.ChangeInvisible),
    ("ChangeInvisibleTimeResponseHeader", pop.ChangeInvisibleReply),
    ("NotificationRequestHeader", pop.Notification),
    ("NotificationResponseHeader", pop.NotificationReply),
    ("PollingInfoRequestHeader", pop.PollingInfo),
    ("PollingInfoResponseHeader", pop.PollingInfoReply),
    ("PeekMessageRequestHeader", pop.Peek),
    ("PullMessageRequestHeader", pull.Pull),
    ("PullMessageRequestHeader", pull.LitePull),
    ("PullMessageResponseHeader", pull.PullReply),
    ("QueryMessageRequestHeader", query.QueryByKey),
    ("QueryMessageResponseHeader", query.QueryReply),
    ("ViewMessageRequestHeader", query.ViewMessage),
    ("ViewMessageResponseHeader", query.ViewMessage.reply),
    ("SendMessageRequestHeaderV2", send.Send),
    ("SendMessageRequestHeaderV2", send.SendBatch),
    ("SendMessageRequestHeader", send.SendLongNames),
    ("SendMessageResponseHeader", send.SendReply),
    ("ConsumerSendMsgBackRequestHeader", send.SendBack),
    ("RecallMessageRequestHeader", timer.Recall),
    ("RecallMessageResponseHeader", timer.RecallReply),
    ("EndTransactionRequestHeader", transaction.EndTransaction),
    ("EndTransactionResponseHeader", transaction.EndTransaction.reply),
    ("CheckTransactionStateRequestHeader", transaction.CheckTransactionState),
    ("CheckTransactionStateResponseHeader", transaction.CheckTransactionState.reply),
    ("ResumeCheckHalfMessageRequestHeader", transaction.ResumeCheck),
]

BODIES: dict[str, Any] = {
    "ConsumerRunningInfo": client_forwarding.RunningInfo,
    "ConsumerConnection": bodies.ConsumerConnection,
    "ConsumeStats": bodies.ConsumeStats,
    "ConsumeQueueData": inspection.QueueEntry,
    "GroupList": inspection.GroupList,
    "ProducerConnection": inspection.ProducerConnection,
    "ProducerInfo": inspection.ProducerInfo,
    "ProducerTableInfo": inspection.ProducerTable,
    "QueryConsumeQueueResponseBody": inspection.QueueEntries,
    "QuerySubscriptionResponseBody": inspection.SubscriptionAnswer,
    "BrokerMemberGroup": namesrv.BrokerMembers,
    "GetBrokerMemberGroupResponseBody": namesrv.BrokerMembersBody,
    "ResetOffsetBody": bodies.ResetOffsetBody,
    "ResetOffsetBodyForC": bodies.ResetOffsetList,
    "GetConsumerStatusBody": bodies.ClientStatus,
    "BrokerStatsData": stats.StatsData,
    "BrokerStatsItem": stats.StatsItem,
    "ConsumeStatsList": stats.ConsumeStatsList,
    "EpochEntryCache": stats.BrokerEpochs,
    "HARuntimeInfo": stats.HaStatus,
    "QueryConsumeTimeSpanBody": stats.TimeSpans,
    "QueryCorrectionOffsetBody": stats.Corrections,
    "QueueTimeSpan": stats.TimeSpan,
    "TopicOffset": stats.QueueStats,
    "TopicStatsTable": stats.TopicStats,
    "UserInfo": access.UserInfo,
    "AclInfo": access.AclInfo,
    "BrokerReplicasInfo": controller.SyncStateData,
    "ElectMasterResponseBody": controller.ElectMasterBody,
    "SyncStateSet": controller.SyncStateSet,
}
BODY_LINES = vector_lines("bodies.jsonl")


@for_each(HEADERS)
def test_headers_agree_with_javas(java: str, ours: Any) -> None:
    agree(java, ours)


@for_each(BODIES)
def test_bodies_are_read_and_written_to_the_byte(java: str) -> None:
    lines = [line for line in BODY_LINES if line["in"]["class"] == java]
    texts = [line["out"]["text"] for line in lines if line["in"]["op"] == "encode"]
    assert texts
    assert [codec.dumps(codec.loads(text, BODIES[java])).decode() for text in texts] == texts


@cache
def quoted() -> frozenset[str]:
    """Quoted names in the tests of this folder."""
    texts = (
        path.read_text("utf-8") for path in HERE.rglob("*.py") if path.name != Path(__file__).name
    )
    return frozenset(name for text in texts for name in re.findall(r'"(\w+)"', text))


def classes(file: str) -> set[str]:
    rows = map(json.loads, (VECTORS / file).read_text("utf-8").splitlines())
    return {name for row in rows if (name := row["in"].get("class"))}


@pytest.mark.parametrize("file", ["headers.jsonl", "bodies.jsonl"])
def test_every_class_that_both_sides_know_is_held_to_its_vectors(file: str) -> None:
    left = classes(file) - quoted() - BODIES.keys() - {java for java, _ in HEADERS}
    assert {name for name in left if not any(re.search(p, name) for p in NOT_HERE)} == set()


def test_every_class_without_ours_is_in_the_vectors() -> None:
    names = classes("headers.jsonl") | classes("bodies.jsonl")
    assert [p for p in NOT_HERE if not any(re.search(p, name) for name in names)] == []
