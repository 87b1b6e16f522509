"""Worst requests: for each call that a server answers, what costs it most to answer.

Every code gets the shapes of `SHAPES`, which attack its header and its body whatever it means.
`BODIES` holds what lists and expressions of its own can make expensive; `PLAIN` has the others.
"""

import json
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from roquet.broker.handlers import HANDLERS
from roquet.controller.handlers import HANDLERS as CONTROLLERS
from roquet.namesrv.handlers import HANDLERS as NAME_SERVERS
from roquet.wire.call import Call
from roquet.wire.calls import controller, heartbeat, lock, pop, pull, query, reply, route, send
from roquet.wire.calls.admin import cold_reads, group, namesrv, settings, topic
from roquet.wire.fields import encode_call
from roquet.wire.frame import FRAME_SIZE_MAX, join_frame
from roquet.wire.header_codec import HEADER_CODECS as HEADERS
from roquet.wire.records.batch import encode_item

Kind = type[Call[Any]]

TOPIC: Final = "orders"
GROUP: Final = "billing"

LARGEST: Final = FRAME_SIZE_MAX - 64 * 1024
"""Bytes of a body that leaves room for a header."""

KNOWN: Final[Mapping[str, object]] = MappingProxyType(
    {
        "topic": TOPIC,
        "default_topic": "TBW102",
        "queue_id": 0,
        "queue_offset": 0,
        "sys_flag": 0,
        "commit_offset": 0,
        "suspend_timeout_millis": 0,
        "poll_time": 0,
        "born_time": 0,
        "invisible_time": 1_000,
        "begin_timestamp": 0,
        "perm": 6,
        "read_queue_nums": 8,
        "write_queue_nums": 8,
        "timestamp": 0,
        "broker_id": 0,
        "broker_name": "broker-a",
        "broker_addr": "127.0.0.1:1",
        "cluster_name": "DefaultCluster",
        "body_crc32": 0,
        "compressed": False,
    }
)
"""Values that let a request get to where the work is."""


def fields(kind: Kind, **given: object) -> dict[str, Any]:
    """A call's fields: known names, groups, the largest numbers."""
    found: dict[str, Any] = {}
    for field in HEADERS[kind].fields:
        if field.name in given:
            found[field.name] = given[field.name]
        elif field.name in KNOWN:
            found[field.name] = KNOWN[field.name]
        elif "group" in field.name and field.kind is str:
            found[field.name] = GROUP
        elif not field.required:
            continue
        elif field.kind is str:
            found[field.name] = "k"
        else:
            found[field.name] = False if field.kind is bool else 2**31 - 1
    return found


def frame(kind: Kind, body: bytes = b"", **given: object) -> bytes:
    """A whole request of a kind."""
    return encode_call(kind(body=body, **fields(kind, **given)), opaque=1)


def raw(kind: Kind, ext: str, body: bytes = b"") -> bytes:
    """A request with this JSON as its fields."""
    header = f'{{"code":{int(kind.code)},"opaque":1,"language":"JAVA","extFields":{ext}}}'
    return join_frame(header.encode("utf-8", "surrogatepass"), body)


def compact(kind: Kind, pairs: bytes) -> bytes:
    """A request in the compact form with these bytes as its fields."""
    head = struct.pack(">hBhiiii", int(kind.code) & 0x7FFF, 0, 0, 1, 0, 0, len(pairs))
    return join_frame(head + pairs, b"", 1)


def _strings(kind: Kind, text: str) -> str:
    """All texts of a call are this one."""
    found = fields(kind)
    for field in HEADERS[kind].fields:
        if field.kind is str and field.name != "topic":
            found[field.name] = text
    names = {field.name: field.wire_name for field in HEADERS[kind].fields}
    return json.dumps({names[name]: value for name, value in found.items()})


def _numbers(kind: Kind, text: str) -> str:
    """All numbers of a call are this one."""
    pairs = [f'"{field.wire_name}":{text}' for field in HEADERS[kind].fields]
    return "{" + ",".join(pairs[:4]) + "}"


SHAPES: Final[Mapping[str, Callable[[Kind], bytes]]] = MappingProxyType(
    {
        "compact zeros of 8 MB": lambda kind: compact(kind, bytes(8_000_000)),
        "compact zeros of 250 KB": lambda kind: compact(kind, bytes(250_000)),
        "20,000 fields": lambda kind: raw(
            kind, json.dumps({str(n): "x" for n in range(20_000)}).replace(" ", "")
        ),
        "1,000,000 fields": lambda kind: raw(
            kind, "{" + ",".join(f'"{n}":"x"' for n in range(1_000_000)) + "}"
        ),
        "long texts": lambda kind: raw(kind, _strings(kind, "x" * 40_000)),
        "long words": lambda kind: raw(kind, _strings(kind, "a||" * 13_000)),
        "a regex": lambda kind: raw(kind, _strings(kind, "(a+)+" * 8_000)),
        "parentheses": lambda kind: raw(kind, _strings(kind, "(" * 40_000)),
        "an expression": lambda kind: raw(kind, _strings(kind, "a>1 or " * 5_000 + "b>1")),
        "hostile unicode": lambda kind: raw(kind, _strings(kind, "\u0301\u202e\uffff" * 2_000)),
        "half surrogates": lambda kind: raw(kind, '{"topic":"' + "\\ud800" * 40_000 + '"}'),
        "numbers of 200,000 digits": lambda kind: raw(kind, _numbers(kind, "1" * 50_000)),
        "deep fields": lambda kind: raw(kind, '{"a":' + "[" * 200_000 + "}"),
        "body of zeros": lambda kind: frame(kind, bytes(LARGEST)),
        "body of brackets": lambda kind: frame(kind, b"[" * LARGEST),
        "body in loose JSON": lambda kind: frame(kind, b"{a:[" + b"[]," * 5_000_000 + b"[]]}"),
        "body in loose JSON, 250 KB": lambda kind: frame(kind, b"{a:" + b" " * 250_000 + b"}"),
        "body in loose JSON, 9,000 values": lambda kind: frame(
            kind, b"{a:[" + b"[]," * 4_000 + b"[]]}"
        ),
        "body of a number": lambda kind: frame(kind, b"{a:" + b"1" * 1_000_000 + b"}"),
        "body with many keys": lambda kind: frame(
            kind, b"{" + b",".join(b'"%d":1' % n for n in range(60_000)) + b"}"
        ),
        "body of nulls": lambda kind: frame(kind, b"[" + b"null," * 130_000 + b"null]"),
        "body of quotes": lambda kind: frame(kind, b'{"clientID":"' + b'\\"' * 120_000),
        "body that unfolds": lambda kind: frame(kind, zlib.compress(bytes(500 << 20), 1)),
    }
)
"""For every code, whatever it means."""


def listed(before: str, item: str, after: str, count: int) -> bytes:
    """JSON with so many items, of which each may hold its number as %d."""
    items = ",".join(item.replace("%d", str(n)) for n in range(count))
    return f"{before}{items}{after}".encode()


def _subscribing(count: int, expression: str, kind: str = "TAG") -> str:
    said = json.dumps(expression)
    wishes = ",".join(
        f'{{"topic":"t{n}","subString":{said},"expressionType":"{kind}"}}' for n in range(count)
    )
    return f'{{"groupName":"{GROUP}","subscriptionDataSet":[{wishes}]}}'


def _heartbeats(kind: Kind) -> Iterator[bytes]:
    head = '{"clientID":"worst","consumerDataSet":['
    for count in (100, 500, 1_000, 30_000):
        yield frame(kind, listed(head, f'{{"groupName":"new{count}-%d"}}', "]}", count))
    producers = '{"clientID":"worst","producerDataSet":['
    for count in (10_000, 40_000, 60_000):
        yield frame(kind, listed(producers, '{"groupName":"p%d"}', "]}", count))
    for count in (4_000, 20_000):
        yield frame(kind, f"{head}{_subscribing(count, 'a||b')}]}}".encode())
    words = "a" + " or a>1" * 100
    yield frame(kind, f"{head}{_subscribing(1, '||'.join(map(str, range(90_000))))}]}}".encode())
    yield frame(kind, f"{head}{_subscribing(1, 'a>1' + ' or a>1' * 100_000, 'SQL92')}]}}".encode())
    sql = ",".join(_subscribing(1, f"{words} or b>{n}", "SQL92") for n in range(500))
    yield frame(kind, f"{head}{sql}]}}".encode())


def _checked(kind: Kind) -> Iterator[bytes]:
    for name, text in {
        "TAG": "||".join(map(str, range(100_000))),
        "SQL92": "a>1" + " or a>1" * 100_000,
        "SQL92 ": "not " * 200_000 + "a",
        " SQL92": "(" * 500_000,
    }.items():
        wish = {"topic": TOPIC, "subString": text, "expressionType": name.strip()}
        yield frame(
            kind, json.dumps({"clientId": "c", "group": GROUP, "subscriptionData": wish}).encode()
        )


def _batches(kind: Kind) -> Iterator[bytes]:
    empty = encode_item(0, b"", b"")
    for count in (40_000, 180_000, 700_000):
        yield frame(kind, empty * count, batch=True)
    tagged = encode_item(0, b"x", b"KEYS\x01" + b"k " * 100 + b"\x02TAGS\x01a")
    yield frame(kind, tagged * 15_000, batch=True)


def _sends(kind: Kind) -> Iterator[bytes]:
    yield from _batches(kind)
    pairs = "".join(f"{n}\x01x\x02" for n in range(4_000))
    yield frame(kind, b"x", properties=pairs[:32_000])
    yield frame(kind, b"x", properties=("\x01\x02" * 20_000))
    yield frame(kind, b"x", properties="KEYS\x01" + "k " * 15_000)
    yield frame(kind, b"x" * (4 << 20))


def _locks(kind: Kind) -> Iterator[bytes]:
    head = f'{{"clientId":"c","consumerGroup":"{GROUP}","mqSet":['
    for count in (16_384, 300_000):
        item = f'{{"topic":"{TOPIC}","brokerName":"a","queueId":%d}}'
        yield frame(kind, listed(head, item, "]}", count))
    item = f'{{"topic":"{TOPIC}","brokerName":"a","queueId":"%d"}}'
    yield frame(kind, listed(head, item, "],}", 1_400))


def _topics(kind: Kind) -> Iterator[bytes]:
    for count in (2_000, 100_000):
        yield frame(kind, listed('{"topicConfigList":[', '{"topicName":"made%d"}', "]}", count))
    attributes = json.dumps({f"+a{n}": "b" for n in range(30_000)})
    yield frame(
        kind, f'{{"topicConfigList":[{{"topicName":"t","attributes":{attributes}}}]}}'.encode()
    )


def _groups(kind: Kind) -> Iterator[bytes]:
    for count in (2_000, 100_000):
        yield frame(kind, listed('{"groupConfigList":[', '{"groupName":"made%d"}', "]}", count))
    attributes = json.dumps({f"+a{n}": "b" for n in range(30_000)})
    yield frame(kind, f'{{"groupName":"g","attributes":{attributes}}}'.encode())


def _acks(kind: Kind) -> Iterator[bytes]:
    item = (
        f'{{"c":"{GROUP}","t":"{TOPIC}","r":"0","so":0,"rq":0,"q":0,"pt":1,"it":1,'
        '"b":"' + "/" * 10_000 + '","bn":"a"}'
    )
    yield frame(kind, listed('{"brokerName":"a","acks":[', item, "]}", 90))
    small = (
        f'{{"c":"{GROUP}","t":"{TOPIC}","r":"0","so":%d,"rq":0,"q":0,"pt":1,"it":1,'
        '"b":"/w==","bn":"a"}'
    )
    for count in (5_000, 50_000):
        yield frame(kind, listed('{"brokerName":"a","acks":[', small, "]}", count))


def _settings(kind: Kind) -> Iterator[bytes]:
    yield frame(kind, b"a=b\n" * 500_000)
    yield frame(kind, b"".join(b"k%d=v\n" % n for n in range(300_000)))
    yield frame(kind, b"a=" + b"\\u0041" * 1_000_000)
    yield frame(kind, b"a=\\\n" * 1_000_000)


def _registrations(kind: Kind) -> Iterator[bytes]:
    yield frame(kind, zlib.compress(bytes(500 << 20), 1), compressed=True)
    version = b"{}"
    for count in (5_000, 90_000):
        lines = [b"t%d 1 1 6 SINGLE_TAG" % n for n in range(count)]
        parts = [struct.pack(">i", len(part)) + part for part in (version, *lines, b"[]")]
        parts.insert(1, struct.pack(">i", count))
        yield frame(kind, zlib.compress(b"".join(parts)), compressed=True)
        head = '{"filterServerList":[],"topicConfigSerializeWrapper":{"topicConfigTable":{'
        yield frame(kind, listed(head, '"t%d":{"topicName":"t%d"}', "}}}", count))
    yield frame(kind, b'{"filterServerList":' + b"[" * 15_000_000)
    yield frame(kind, b'{"filterServerList":["' + b"x" * 15_000_000)


def _routes(kind: Kind) -> Iterator[bytes]:
    item = '{"brokerName":"b%d","readQueueNums":1,"writeQueueNums":1,"perm":6,"topicSysFlag":0}'
    yield frame(kind, listed('{"queueDatas":[', item, "]}", 10_000))


def _expressions(kind: Kind) -> Iterator[bytes]:
    names = {"subscription": "expression_type"} if kind is not pop.Pop else {"exp": "exp_type"}
    for text in (
        "a>1" + " or a>1" * 30_000,
        "not " * 50_000 + "a",
        "a in (" + ",".join(f"'{n}'" for n in range(25_000)) + ")",
        "a like '" + "%" * 200_000 + "b'",
    ):
        for name, kind_name in names.items():
            for said in ("SQL92", "TAG"):
                given: dict[str, object] = {name: text, kind_name: said}
                yield frame(kind, b"", **given)


def _offsets(kind: Kind) -> Iterator[bytes]:
    yield frame(kind, listed('{"offsets":{', "%d:1", "}}", 5_000))
    yield frame(kind, listed('{"offsets":{', '"%d":1', "}}", 60_000))
    yield from _expressions(kind)


def _keys(kind: Kind) -> Iterator[bytes]:
    yield frame(kind, key="k", max_num=2**31 - 1, end_timestamp=2**62)
    yield frame(kind, key="tag", index_type="T", max_num=2**31 - 1, end_timestamp=2**62)


def _many_topics(kind: Kind) -> Iterator[bytes]:
    yield frame(kind, topic_list=";".join(f"made{n}" for n in range(10_000)))


def _replica_sets(kind: Kind) -> Iterator[bytes]:
    for item in ('"broker-a"', '"made%d"'):
        yield frame(kind, listed("[", item, "]", 1_000_000))


def _changed_sets(kind: Kind) -> Iterator[bytes]:
    for count in (10_000, 1_500_000):
        yield frame(kind, listed('{"syncStateSet":[', "%d", '],"syncStateSetEpoch":1}', count))


def _values(kind: Kind) -> Iterator[bytes]:
    for n in range(5):
        yield frame(kind, namespace="n", key=f"k{n}", value="x" * 200_000)


PLAIN: Final = frozenset(
    [
        "Ack",
        "AddWritePermission",
        "ApplyBrokerId",
        "CreateAcl",
        "CreateUser",
        "DeleteAcl",
        "DeleteUser",
        "GetAcl",
        "GetUser",
        "ListAcls",
        "ListUsers",
        "UpdateAcl",
        "UpdateUser",
        "BrokerHeartbeat",
        "ChangeInvisible",
        "CleanBrokerData",
        "CleanQueues",
        "CleanTopics",
        "CloneOffsets",
        "ConsumeDirectly",
        "CreateTopic",
        "DeleteExpired",
        "DeleteGroup",
        "DeleteKV",
        "DeleteTopic",
        "EarliestTime",
        "ElectMaster",
        "EndTransaction",
        "ExchangeHaInfo",
        "ForbidGroup",
        "ForgetTopic",
        "GetAllConsumeStats",
        "GetAllOffsets",
        "GetAllProducers",
        "GetAllTopics",
        "GetBrokerMembers",
        "GetClusterInfo",
        "GetColdReadLimits",
        "GetConnections",
        "GetConsumers",
        "GetControllerMetadata",
        "GetControllerSettings",
        "GetCorrections",
        "GetDelayOffsets",
        "GetEntries",
        "GetEpochs",
        "GetGroup",
        "GetGroupStatus",
        "GetGroups",
        "GetGroupsOfTopic",
        "GetHaStatus",
        "GetKV",
        "GetNameServerSettings",
        "GetNextBrokerId",
        "GetProducers",
        "GetReplicaInfo",
        "GetRequestModes",
        "GetRoute",
        "GetRunningInfo",
        "GetRuntimeInfo",
        "GetSettings",
        "GetSubscription",
        "GetSystemTopics",
        "GetTimeSpan",
        "GetTimerCheckpoint",
        "GetTimerMetrics",
        "GetTopic",
        "GetTopicStats",
        "GetTopics",
        "GetTopicsOfGroup",
        "ListKV",
        "MaxOffset",
        "MinOffset",
        "Notification",
        "NotifyRoleChanged",
        "OffsetByTime",
        "OthersSubscribedTopics",
        "Peek",
        "PollingInfo",
        "QueryAssignment",
        "QueryDataVersion",
        "QueryOffset",
        "Recall",
        "RegisterWithController",
        "RemoveColdReadLimit",
        "ResetOffset",
        "ResumeCheck",
        "SendBack",
        "SetReadAhead",
        "SetRequestMode",
        "SystemTopics",
        "TopicsOfCluster",
        "UnitSubscribedTopics",
        "UnitTopics",
        "Unregister",
        "UnregisterBroker",
        "UpdateOffset",
        "ViewMessage",
        "ViewStats",
        "WipeWritePermission",
    ]
)
"""Calls without a list, a map or an expression of their own: `SHAPES` are their worst."""

BODIES: Final[Mapping[Kind, Callable[[Kind], Iterator[bytes]]]] = MappingProxyType(
    {
        heartbeat.Heartbeat: _heartbeats,
        heartbeat.CheckSubscription: _checked,
        send.Send: _sends,
        send.SendLongNames: _sends,
        send.SendBatch: _batches,
        reply.SendReplyMessage: _sends,
        reply.SendReplyLongNames: _sends,
        lock.LockQueues: _locks,
        lock.UnlockQueues: _locks,
        topic.CreateTopics: _topics,
        topic.CreateGroup: _groups,
        topic.CreateGroups: _groups,
        pop.BatchAck: _acks,
        pop.Pop: _expressions,
        pull.Pull: _offsets,
        pull.LitePull: _offsets,
        query.QueryByKey: _keys,
        group.GetConsumeStats: _many_topics,
        settings.UpdateSettings: _settings,
        cold_reads.SetColdReadLimits: _settings,
        namesrv.UpdateNameServerSettings: _settings,
        route.RegisterBroker: _registrations,
        namesrv.RegisterTopic: _routes,
        controller.AlterSyncStateSet: _changed_sets,
        controller.GetSyncStateData: _replica_sets,
        controller.UpdateControllerSettings: _settings,
        route.PutKV: _values,
    }
)


def every_call() -> list[Kind]:
    """Every call that is answered, those last that delete what others need."""
    served = {kind.__name__: kind for kind in (*HANDLERS, *NAME_SERVERS, *CONTROLLERS)}
    return sorted(served.values(), key=lambda kind: ("Delete" in kind.__name__, kind.__name__))
