"""A master whose answers a test says, as a broker of Apache gives them: without our own fields."""

from collections.abc import Callable
from typing import Any

from roquet.broker.tables.delay_offsets import DelayOffsetTable
from roquet.broker.tables.request_modes import RequestModeTable
from roquet.model.errors import CallRefused
from roquet.model.topic import DataVersion, GroupTable, TopicConfig
from roquet.net.clock import Clock
from roquet.net.router import Peer, Router
from roquet.net.server import Server
from roquet.store.timer.layout import TimerCheckpoint, encode_checkpoint
from roquet.wire.call import Call, Reply
from roquet.wire.calls.admin.inspection import (
    AllOffsets,
    AllOffsetsReply,
    GetAllOffsets,
    GetDelayOffsets,
    GetRequestModes,
)
from roquet.wire.calls.admin.settings import GetSettings, SettingsReply
from roquet.wire.calls.admin.stats import GetHaStatus, GetRuntimeInfo, HaStatus
from roquet.wire.calls.admin.topic import GetGroups, GetTopics, GroupsReply, TopicsReply
from roquet.wire.calls.bodies import KVTable, TopicsOfBroker
from roquet.wire.calls.query import ViewMessage
from roquet.wire.calls.timer import GetTimerCheckpoint, GetTimerMetrics, TimerMetricsBody
from roquet.wire.fastjson import codec

Answer = Callable[[Any], Reply]


class FakeMaster:
    """Serves the requests of replicas; a test changes the tables, or an answer as a whole."""

    def __init__(self, clock: Clock, port: int = 20_000) -> None:
        self.settings = "brokerClusterName=DefaultCluster\nbrokerName=broker-a\nbrokerId=0\n"
        self.log_begin = self.log_end = 0
        self.topics = TopicsOfBroker()
        self.groups = GroupTable()
        self.offsets = AllOffsets(data_version=DataVersion(counter=1))
        self.delay_offsets = DelayOffsetTable()
        self.timer = TimerCheckpoint()
        self.metrics = TimerMetricsBody()
        self.records: dict[int, bytes] = {}
        """Records of its log, by position."""
        self.answers: dict[type[Call[Any]], Answer] = {}
        """Answers in place of those from the tables."""
        self.asked: list[Call[Any]] = []
        self.address = f"127.0.0.1:{port}"
        router = Router()
        for call_type, answer in self.default_answers().items():
            router.add(call_type, self._serve(call_type, answer))
        self.server = Server(router, host="127.0.0.1", port=port, clock=clock)

    def has_topics(self, *names: str, counter: int = 1, **more: Any) -> None:
        """Its topics, besides those that every broker has."""
        configs = {name: TopicConfig(topic_name=name) for name in names}
        version = DataVersion(counter=counter)
        self.topics = TopicsOfBroker(topic_config_table=configs, data_version=version, **more)

    def count(self, call_type: type[Call[Any]]) -> int:
        """How often it was asked for something."""
        return sum(isinstance(call, call_type) for call in self.asked)

    def _serve(self, call_type: type[Call[Any]], answer: Answer) -> Callable[[Any, Peer], Reply]:
        def serve(call: Any, _peer: Peer) -> Reply:
            self.asked.append(call)
            return self.answers.get(call_type, answer)(call)

        return serve

    def default_answers(self) -> dict[type[Call[Any]], Answer]:
        """Answers from the tables, by call."""
        return {
            GetSettings: lambda _: SettingsReply(version="{}", body=self.settings.encode()),
            GetHaStatus: lambda _: Reply(
                body=codec.dumps(HaStatus(master=True, master_commit_log_max_offset=self.log_end))
            ),
            GetRuntimeInfo: lambda _: Reply(body=codec.dumps(KVTable(table=self._bounds()))),
            GetTopics: lambda _: TopicsReply(
                total_topic_num=len(self.topics.topic_config_table), body=codec.dumps(self.topics)
            ),
            GetGroups: lambda _: GroupsReply(
                total_group_num=len(self.groups.subscription_group_table),
                body=codec.dumps(self.groups),
            ),
            GetAllOffsets: lambda _: AllOffsetsReply(body=codec.dumps(self.offsets)),
            GetDelayOffsets: lambda _: Reply(body=codec.dumps(self.delay_offsets)),
            GetRequestModes: lambda _: Reply(body=codec.dumps(RequestModeTable())),
            GetTimerCheckpoint: lambda _: Reply(body=encode_checkpoint(self.timer)),
            GetTimerMetrics: lambda _: Reply(body=codec.dumps(self.metrics)),
            ViewMessage: lambda call: self._record(call.offset),
        }

    def _bounds(self) -> dict[str, str]:
        begin, end = str(self.log_begin), str(self.log_end)
        return {"commitLogMinOffset": begin, "commitLogMaxOffset": end}

    def _record(self, position: int) -> Reply:
        if position not in self.records:
            raise CallRefused(1, f"can not find message by the offset, {position}")
        return Reply(body=self.records[position])
