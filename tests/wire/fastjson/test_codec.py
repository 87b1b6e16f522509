"""Java's JSON, against texts that Apache's classes wrote and read."""

import json
from contextlib import suppress
from enum import IntFlag
from typing import Any, get_origin
from weakref import ref

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.vector_lines import vector_lines

from roquet.model import subscription
from roquet.model.errors import FieldError
from roquet.model.queue import MessageQueue
from roquet.model.route import BrokerData, ClusterInfo, TopicRoute
from roquet.model.topic import DataVersion, OffsetTable, TopicConfig, TopicTable
from roquet.wire.codes import Language
from roquet.wire.fastjson.codec import EncodedTextCache, dumps, loads
from roquet.wire.fastjson.parser import NESTING_MAX


class Offset(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Java's OffsetWrapper, for its table with objects as keys."""

    broker_offset: int
    consumer_offset: int
    pull_offset: int
    last_timestamp: int


class Stats(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Java's ConsumeStats."""

    offset_table: dict[MessageQueue, Offset] = {}
    consume_tps: float = 0


class Status(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Java's GetConsumerStatusBody: objects as keys within a map."""

    message_queue_table: dict[MessageQueue, int] = {}
    consumer_table: dict[str, dict[MessageQueue, int]] = {}


class Reset(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Java's ResetOffsetBody."""

    offset_table: dict[MessageQueue, int] = {}


class Acked(msgspec.Struct, frozen=True, kw_only=True):
    """Java's BatchAck: short names, bytes as base64."""

    b: bytes
    c: str
    it: int
    pt: int
    q: int
    r: str
    rq: int
    so: int
    t: str


class Ack(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Java's BatchAckMessageRequestBody."""

    acks: list[Acked] | None = None
    broker_name: str | None = None


CLASSES: dict[str, Any] = {
    "ConsumeStats": Stats,
    "GetConsumerStatusBody": Status,
    "ResetOffsetBody": Reset,
    "BatchAck": Acked,
    "BatchAckMessageRequestBody": Ack,
    "OffsetWrapper": Offset,
}
BODIES = vector_lines("bodies.jsonl")
TEXTS = {
    (line["in"]["class"], line["out"]["text"])
    for line in BODIES
    if line["in"]["op"] == "encode" and line["in"]["class"] in CLASSES
}


@pytest.mark.parametrize(("name", "text"), sorted(TEXTS))
def test_java_texts_are_read_and_written_to_the_byte(name: str, text: str) -> None:
    assert dumps(loads(text, CLASSES[name])).decode() == text


READ = [
    (line["in"]["class"], line["in"]["text"], line["out"]["reencoded"])
    for line in BODIES
    if line["in"]["op"] == "decode" and line["in"]["class"] in CLASSES
]


@pytest.mark.parametrize(("name", "text", "again"), READ)
def test_others_texts_are_read_as_in_java(name: str, text: str, again: str) -> None:
    assert dumps(loads(text, CLASSES[name])).decode() == again


QUEUE = MessageQueue("t", "a", 0)
ROUTE = TopicRoute(
    broker_datas=[BrokerData(cluster="c", broker_name="a", broker_addrs={1: "h:2", 0: "h:1"})],
    filter_server_table={"b": [], "a": ["é"]},
)


def test_numeric_keys_are_bare_for_java_and_quoted_on_request() -> None:
    assert b'"brokerAddrs":{1:"h:2",0:"h:1"}' in dumps(ROUTE)
    assert b'"brokerAddrs":{"0":"h:1","1":"h:2"}' in dumps(ROUTE, standard=True)


def test_standard_json_is_ascii_and_sorted() -> None:
    text = dumps(ROUTE, standard=True)
    assert text.isascii()
    assert text.index(b'"a":') < text.index(b'"b":')
    assert json.loads(text)["brokerDatas"][0]["cluster"] == "c"


def test_numbers_sort_as_numbers() -> None:
    assert dumps({10: "x", 9: "y"}, standard=True) == b'{"9":"y","10":"x"}'


def test_objects_as_keys() -> None:
    text = dumps({QUEUE: 5})
    assert text == b'{{"brokerName":"a","queueId":0,"topic":"t"}:5}'
    assert loads(text, dict[MessageQueue, int]) == {QUEUE: 5}
    standard = dumps({QUEUE: 5}, standard=True)
    assert list(json.loads(json.loads(standard).popitem()[0])) == ["brokerName", "queueId", "topic"]


def test_heartbeats_of_the_cpp_client_are_read() -> None:
    text = """{"clientID":"c","consumerDataSet":[{"consumeFromWhere":5,"consumeType":0,
    "groupName":"g","messageModel":0,"subscriptionDataSet":[{"codeSet":["97",98],"subString":"a",
    "subVersion":"17","tagsSet":null,"topic":"T"}],"unitMode":"0"}]}\n"""
    (consumer,) = loads(text, subscription.HeartbeatData).consumer_data_set
    assert consumer == subscription.ConsumerData(
        group_name="g",
        consume_type=subscription.ConsumeType.CONSUME_ACTIVELY,
        message_model=subscription.MessageModel.BROADCASTING,
        consume_from_where=subscription.ConsumeFromWhere.CONSUME_FROM_TIMESTAMP,
        subscription_data_set=[
            subscription.Subscription(topic="T", sub_string="a", sub_version=17, code_set=[97, 98])
        ],
    )


def test_enums_of_the_go_client_are_read_in_its_own_case() -> None:
    text = b'{"groupName":"g","messageModel":"BroadCasting"}'
    assert (
        loads(text, subscription.ConsumerData).message_model
        is subscription.MessageModel.BROADCASTING
    )


def test_null_is_a_default_or_an_empty_list() -> None:
    text = b'{"topicConfigTable":null,"dataVersion":null}'
    assert loads(text, TopicTable) == TopicTable()
    text = b'{"cluster":"c","brokerName":"b","brokerAddrs":null,"zoneName":null}'
    assert loads(text, BrokerData).broker_addrs == {}


def test_unknown_fields_are_passed_over() -> None:
    text = b'{"offsetTable":{"t@g":{0:5}},"groupTopicMap":{"g":["t"]},"pullOffsetTable":{}}'
    assert loads(text, OffsetTable).offset_table == {"t@g": {0: 5}}


def test_configuration_files_are_laid_out_as_javas() -> None:
    table = {"none": {}, "map": {0: 1}, "texts": ["x"], "numbers": [1, 2], "empty": []}
    assert dumps(table, pretty=True).decode() == (
        '{\n\t"none":{},\n\t"map":{\n\t\t0:1\n\t},\n\t"texts":[\n\t\t"x"\n\t],'
        '\n\t"numbers":[1,2],\n\t"empty":[]\n}'
    )
    nested = dumps({"a": [{"b": 1}, {}]}, pretty=True).decode()
    assert nested == '{\n\t"a":[\n\t\t{\n\t\t\t"b":1\n\t\t},\n\t\t{}\n\t]\n}'


class Odd(IntFlag):
    READ = 4
    WRITE = 2


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (1.5, "1.5"),
        (b"\x05", '"BQ=="'),
        (Language.RUBY, '"RUBY"'),
        (subscription.MessageModel.CLUSTERING, '"CLUSTERING"'),
        (Odd.READ | Odd.WRITE, "6"),
        ({"a": None, "b": [None]}, '{"b":[null]}'),
        ((1, 2), "[1,2]"),
        ({7}, "[7]"),
        ('é\x01\n/"', '"é\\u0001\\n/\\""'),
    ],
)
def test_values_are_written_as_java_writes_them(value: object, text: str) -> None:
    assert dumps(value).decode() == text


def test_values_that_json_cannot_hold_are_our_own_fault() -> None:
    with pytest.raises(TypeError, match="object cannot be written"):
        dumps(object())


def test_half_a_surrogate_pair_survives() -> None:
    text = dumps({"a": "\ud83d é"})
    assert text.isascii()
    assert loads(text, dict[str, str]) == {"a": "\ud83d é"}


texts = st.text(max_size=9)
configs = st.builds(
    TopicConfig,
    topic_name=texts,
    read_queue_nums=st.integers(-9, 9),
    order=st.booleans(),
    attributes=st.dictionaries(texts, texts, max_size=3),
)
versions = st.builds(DataVersion, timestamp=st.integers(0, 2**63 - 1), counter=st.integers(0, 9))
queues = st.builds(MessageQueue, texts, texts, st.integers(-(2**31), 2**31 - 1))
tables: st.SearchStrategy[Any] = st.one_of(
    st.builds(TopicTable, topic_config_table=st.dictionaries(texts, configs, max_size=3)),
    st.builds(
        OffsetTable,
        offset_table=st.dictionaries(
            texts, st.dictionaries(st.integers(-9, 99), st.integers(0, 2**63 - 1), max_size=3)
        ),
        data_version=versions,
    ),
    st.builds(ClusterInfo, cluster_addr_table=st.dictionaries(texts, st.lists(texts, max_size=3))),
    st.builds(
        Status,
        consumer_table=st.dictionaries(texts, st.dictionaries(queues, st.integers(-9, 2**63 - 1))),
    ),
)


@given(tables, st.booleans())
def test_encoded_values_are_read_back(value: Any, pretty: bool) -> None:
    if not isinstance(value, Status):
        assert loads(dumps(value, standard=True), type(value)) == value
    assert loads(dumps(value, pretty=pretty), type(value)) == value


@given(st.binary(max_size=40) | st.text('{}[]:,"\\ 01.-etrufalsn\n', max_size=30))
def test_any_bytes_are_a_value_or_a_field_error(data: bytes | str) -> None:
    for wanted in (Stats, OffsetTable, subscription.HeartbeatData, dict[str, object]):
        with suppress(FieldError):
            assert isinstance(loads(data, wanted), get_origin(wanted) or wanted)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"", "a value is expected at the end"),
        (b"[]", "not an object"),
        (b"\xff", "no UTF-8 at byte 0"),
        (b'{"topicConfigTable":5}', r"\$.topicConfigTable is 5, not an object"),
        (b'{"topicConfigTable":{"t":{"topicName":"t","perm":"x"}}}', "perm is 'x', not a whole"),
        (b'{"a":' + b"[" * 99_999, f"nested deeper than the limit {NESTING_MAX}"),
    ],
)
def test_a_broken_body_is_named(text: bytes, said: str) -> None:
    with pytest.raises(FieldError, match=said):
        loads(text, TopicTable)


def test_cached_texts_change_nothing_but_the_cost() -> None:
    topics = {f"t{number}": TopicConfig(topic_name=f"t{number}") for number in range(3)}
    for pretty, standard in ((False, False), (True, False), (False, True)):
        text_cache = EncodedTextCache()
        table = TopicTable(topic_config_table=topics)
        wanted = dumps(table, pretty=pretty, standard=standard)
        for _ in range(3):
            assert dumps(table, pretty=pretty, standard=standard, text_cache=text_cache) == wanted


def test_a_cached_text_belongs_to_its_value_alone() -> None:
    text_cache = EncodedTextCache()
    first, other = TopicConfig(topic_name="t"), TopicConfig(topic_name="t", read_queue_nums=4)
    for topic in (first, other, first):
        table = TopicTable(topic_config_table={"t": topic})
        assert dumps(table, text_cache=text_cache) == dumps(table)


def test_the_cache_does_not_hold_values_that_have_left_the_table() -> None:
    class Value:
        pass

    text_cache, value = EncodedTextCache(), Value()
    is_held = ref(value)
    text_cache.begin()
    text_cache.text(value, lambda _value, _line: "{}", "")
    del value
    assert is_held() is not None
    for _ in range(2):
        text_cache.begin()
    assert is_held() is None


@pytest.mark.parametrize("pretty", [True, False])
def test_numbers_by_numbers_are_written_like_everything_else(pretty: bool) -> None:
    line = "\n\t" if pretty else ""
    end = "\n" if pretty else ""
    text = dumps({0: 5, 3: -1}, pretty=pretty).decode()
    assert text == f"{{{line}0:5,{line}3:-1{end}}}"
    assert dumps({0: 5, 3: True}) == b"{0:5,3:true}"
    assert dumps({0: 5}, standard=True) == b'{"0":5}'
    assert dumps({}) == b"{}"
