"""Header fields of calls and replies: those of Apache's clients, ours, and refused ones."""

import contextlib
import importlib
import json
import pkgutil
from collections.abc import Iterator
from types import NoneType
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.for_each import for_each
from tests.vector_lines import vector_lines

from roquet.model.errors import FieldError
from roquet.wire import calls
from roquet.wire import fields as wire
from roquet.wire.call import Call, Int, Reply
from roquet.wire.calls.heartbeat import Heartbeat
from roquet.wire.calls.offset import MaxOffset, MinOffset, OffsetReply, QueryOffset, UpdateOffset
from roquet.wire.calls.pull import Pull, PullReply
from roquet.wire.calls.send import Send, SendLongNames, SendReply
from roquet.wire.codes import Language, ResponseCode, SerializeType
from roquet.wire.command import ROCKETMQ, Command, decode, encode
from roquet.wire.frame import FrameReader, join_frame

pytestmark = pytest.mark.usefixtures("form")


def subclasses(root: Any) -> Iterator[Any]:
    for subclass in root.__subclasses__():
        yield subclass
        yield from subclasses(subclass)


for module in pkgutil.iter_modules(calls.__path__):
    importlib.import_module(f"{calls.__name__}.{module.name}")
CALLS: list[type[Call[Any]]] = [c for c in subclasses(Call) if c.__module__.startswith("roquet.")]
REPLIES: list[type[Reply]] = [r for r in subclasses(Reply) if r.__module__.startswith("roquet.")]
BY_CODE = {int(call.code): call for call in CALLS}


def frame(stream: bytes) -> bytes:
    (only,) = FrameReader().feed(stream)
    return only


def request(fields: str, code: int = 31) -> Command:
    header = f'{{"code":{code},"extFields":{fields}}}'
    return decode(frame(join_frame(header.encode("utf-8", "surrogatepass"), b"body")))


def values(field: wire.HeaderField) -> st.SearchStrategy[Any]:
    """Any value of a field; compact headers cannot tell an empty text from an absent one."""
    small = "Int" if "2147483647" in str(field.annotation) else "Long"
    bits = 31 if small == "Int" else 63
    of_kind: dict[type, st.SearchStrategy[Any]] = {
        str: st.text(st.characters(codec="utf-8"), min_size=1, max_size=9),
        int: st.integers(-(2**bits), 2**bits - 1),
        bool: st.booleans(),
    }
    strategy = of_kind[field.kind]
    return strategy | st.none() if field.optional else strategy


@st.composite
def instances(draw: st.DrawFn, structs: list[Any]) -> Any:
    struct = draw(st.sampled_from(structs))
    fields = {field.name: draw(values(field)) for field in wire.HEADER_CODECS[struct].fields}
    return struct(**fields, body=draw(st.binary(max_size=9)))


@given(instances(CALLS), st.integers(0, 2**31 - 1), st.booleans(), st.sampled_from(SerializeType))
def test_a_call_arrives_as_it_was_sent(
    call: Any, opaque: int, oneway: bool, serialize_type: int
) -> None:
    stream = wire.encode_call(call, opaque=opaque, oneway=oneway, serialize_type=serialize_type)
    command = decode(frame(stream))
    assert wire.decode_call(command, type(call)) == call
    assert (command.code, command.opaque, command.is_oneway) == (call.code, opaque, oneway)
    assert (command.language, command.serialize_type) == (Language.PYTHON, serialize_type)
    assert not command.is_response


@given(
    instances(REPLIES),
    st.none() | st.text(min_size=1, max_size=9),
    st.builds(
        Command, code=st.just(10), opaque=st.integers(-9, 9), serialize_type=st.sampled_from([0, 1])
    ),
)
def test_a_reply_arrives_as_it_was_sent_in_the_form_of_its_request(
    reply: Any, remark: str | None, asked: Command
) -> None:
    reply = msgspec.structs.replace(reply, remark=remark)
    command = decode(frame(wire.encode_reply(reply, asked)))
    assert wire.decode_reply(command, type(reply)) == reply
    assert (command.opaque, command.serialize_type) == (asked.opaque, asked.serialize_type)
    assert command.is_response


@given(instances(CALLS + REPLIES))
def test_every_value_leaves_as_a_string(value: Any) -> None:
    stream = (
        wire.encode_call(value, opaque=1)
        if isinstance(value, Call)
        else wire.encode_reply(value, Command(10))
    )
    size = int.from_bytes(stream[5:8], "big")
    sent = json.loads(stream[8 : 8 + size]).get("extFields", {})
    assert sent == wire.to_ext(value)
    assert all(type(text) is str for text in sent.values())


@given(instances(CALLS + REPLIES))
def test_both_forms_say_the_same(value: Any) -> None:
    stream = (
        wire.encode_call(value, opaque=1, serialize_type=ROCKETMQ)
        if isinstance(value, Call)
        else wire.encode_reply(value, Command(10, serialize_type=ROCKETMQ))
    )
    assert decode(frame(stream)).ext == wire.to_ext(value)


@pytest.mark.parametrize("text", ["x" * 255, "x" * 256, "x" * 70_000, "\0", "\u0651" * 200])
def test_the_compact_form_holds_any_text(text: str) -> None:
    call = Send(producer_group="g", topic="t", queue_id=0, born_timestamp=1, properties=text)
    stream = wire.encode_call(call, opaque=1, serialize_type=ROCKETMQ)
    assert wire.decode_call(decode(frame(stream)), Send) == call


def understood(command: Command, call: Any) -> Any:
    try:
        return wire.decode_call(command, call)
    except FieldError as error:
        return str(error)


odd_texts = st.integers().map(str) | st.sampled_from(
    ["", " 1", "+1", "1.0", "1e3", "TRUE", "false", "0", "null", "x\0", "\u0651", "9" * 30]
)


@given(st.sampled_from(CALLS), st.data())
def test_compact_fields_mean_what_their_texts_mean(call: Any, data: st.DataObject) -> None:
    names = st.sampled_from(
        [field.wire_name for field in wire.HEADER_CODECS[call].fields] + ["body", "x"]
    )
    sent = data.draw(
        st.dictionaries(names, odd_texts | st.text(st.characters(codec="utf-8"), max_size=9))
    )
    arrived = decode(frame(encode(Command(call.code, fields=sent, serialize_type=ROCKETMQ))))
    texts = {name: value for name, value in sent.items() if value}
    assert understood(arrived, call) == understood(Command(call.code, fields=texts), call)


RECORDED = [
    line
    for name in ("requests-cpp-client-0.4.4", "requests-js-client-3.12.0")
    for line in vector_lines(f"{name}.jsonl")
]


@for_each(RECORDED)
def test_requests_of_genuine_clients_are_understood(recorded: dict[str, Any]) -> None:
    header, body = recorded["header"], recorded["body"].encode()
    command = decode(frame(join_frame(json.dumps(header).encode() + b"\n", body)))
    call = wire.decode_call(command, BY_CODE[command.code])
    sent = {name: str(value).lower() for name, value in header["extFields"].items()}
    ours = {name: text.lower() for name, text in wire.to_ext(call).items()}
    truths = {"0": "false", "1": "true"}
    for name in ours.keys() & sent.keys():
        assert ours[name] in {sent[name], truths.get(sent[name])}, name
    assert call.body == body
    assert command.ext["OnsChannel"] == "ALIYUN", "unknown fields are kept for who looks at them"


def test_the_codes_that_recorded_clients_use_are_served() -> None:
    used = {recorded["header"]["code"] for recorded in RECORDED}
    assert used - BY_CODE.keys() == set()


def test_numbers_and_booleans_may_come_as_they_are() -> None:
    call = wire.decode_call(
        request('{"a":"g","b":7,"e":3,"g":17,"i":null,"k":false,"m":true,"c":1.5}', 310), Send
    )
    assert (call.topic, call.queue_id, call.born_timestamp) == ("7", 3, 17)
    assert (call.unit_mode, call.batch, call.default_topic) == (False, True, "1.5")
    assert call.properties == ""


@pytest.mark.parametrize("empty", ['""', "null", '"null"'])
def test_an_empty_number_or_boolean_is_absent(empty: str) -> None:
    call = wire.decode_call(
        request(f'{{"a":"g","b":"t","e":"0","g":"1","f":{empty},"k":{empty},"l":{empty}}}', 310),
        Send,
    )
    assert (call.sys_flag, call.unit_mode, call.max_reconsume_times) == (0, False, None)


@pytest.mark.parametrize("required", ["0", '"0"'])
def test_an_empty_text_stays_one_whichever_way_it_is_read(required: str) -> None:
    call = wire.decode_call(
        request(f'{{"consumerGroup":"","topic":"t","queueId":{required},"commitOffset":""}}', 14),
        QueryOffset,
    )
    assert call.consumer_group == ""


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ("{}", "field topic is missing"),
        ('{"topic":"t"}', r"MinOffset \(31\): field queueId \(queue_id\) is missing"),
        ('{"topic":"t","queueId":null}', "queueId .* is missing"),
        ('{"topic":"t","queueId":""}', "queueId .* is ''"),
        ('{"topic":"t","queueId":"null"}', "queueId .* is 'null'"),
        ('{"topic":"t","queueId":"x"}', "is 'x', not a whole number"),
        ('{"topic":"t","queueId":" 1"}', "not a whole number"),
        ('{"topic":"t","queueId":true}', "is 'true', not a whole number"),
        ('{"topic":"t","queueId":[1]}', "not a whole number"),
        ('{"topic":"t","queueId":2147483648}', "beyond its limits"),
        ('{"topic":"t","queueId":"-2147483649"}', "beyond its limits"),
        ('{"topic":"t","queueId":"' + "9" * 5000 + '"}', "not a whole number"),
        ('{"topic":"t","queueId":1e99}', "not a whole number"),
        ("[]", "not an object"),
        ("5", "not an object"),
    ],
)
def test_a_broken_field_is_named(fields: str, text: str) -> None:
    with pytest.raises(FieldError, match=text):
        wire.decode_call(request(fields), MinOffset)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=4,
)


@given(st.sampled_from(CALLS), st.data())
def test_any_fields_are_a_call_or_a_field_error(call: Any, data: st.DataObject) -> None:
    names = [field.wire_name for field in wire.HEADER_CODECS[call].fields] or ["x"]
    sent = data.draw(st.dictionaries(st.sampled_from([*names, "body"]), anything))
    command = request(json.dumps(sent), call.code)
    with contextlib.suppress(FieldError):
        assert wire.decode_call(command, call).body == b"body"


def test_values_that_are_neither_true_nor_false_are_reported() -> None:
    with pytest.raises(FieldError, match="committed is 'perhaps', neither true nor false"):
        wire.decode_call(request('{"topic":"t","queueId":0,"committed":"perhaps"}', 30), MaxOffset)


def test_without_fields_a_call_has_its_defaults() -> None:
    for fields in ("{}", "null"):
        assert wire.decode_call(request(fields, 34), Heartbeat) == Heartbeat(body=b"body")


def test_fields_cannot_pass_for_the_body() -> None:
    call = wire.decode_call(request('{"body":"AAAA","topic":"t","queueId":0}'), MinOffset)
    assert call.body == b"body"
    call = wire.decode_call(request('{"body":"!","topic":"t","queueId":0}'), MinOffset)
    assert call.body == b"body"


def test_fields_cannot_pass_for_code_and_remark() -> None:
    answer = Command(0, remark="so", fields={"code": "5", "remark": "no", "offset": "7"})
    assert wire.decode_reply(answer, OffsetReply) == OffsetReply(offset=7, remark="so")


def test_limits_are_those_of_java() -> None:
    fields = {"consumerGroup": "g", "topic": "t", "queueId": "2147483647"}
    long = {"commitOffset": str(2**63 - 1)}
    assert (
        wire.decode_call(Command(15, fields=fields | long), UpdateOffset).commit_offset == 2**63 - 1
    )
    with pytest.raises(FieldError, match="commitOffset"):
        wire.decode_call(Command(15, fields=fields | {"commitOffset": str(2**63)}), UpdateOffset)


def test_half_a_surrogate_pair_in_the_properties_survives() -> None:
    call = Send(producer_group="g", topic="t", queue_id=0, born_timestamp=1, properties="\ud83d")
    assert wire.decode_call(decode(frame(wire.encode_call(call, opaque=1))), Send) == call


def test_a_refusal_needs_no_fields() -> None:
    refused = Command(ResponseCode.SYSTEM_BUSY, remark="later", body=b"x")
    reply = wire.decode_reply(refused, PullReply)
    assert type(reply) is Reply
    assert (reply.code, reply.remark, reply.body) == (2, "later", b"x")


def test_an_accepted_answer_without_its_fields_is_broken() -> None:
    for code in Pull.accepts:
        with pytest.raises(FieldError, match="PullReply: field nextBeginOffset"):
            wire.decode_reply(Command(code), PullReply, Pull.accepts)


def test_a_refusal_keeps_the_fields_that_it_has() -> None:
    refused = Command(16, fields={"MSG_REGION": "west"})
    reply = wire.decode_reply(refused, SendReply)
    assert isinstance(reply, SendReply)
    assert (reply.region, reply.code) == ("west", 16)


def test_none_is_left_out() -> None:
    assert "transactionId" not in wire.to_ext(SendReply())
    assert b"extFields" not in wire.encode_reply(Reply(), Command(10))


def test_a_reply_names_its_language_and_version() -> None:
    stream = wire.encode_reply(Reply(), Command(10), language=Language.JAVA, version=401)
    assert (decode(frame(stream)).language, decode(frame(stream)).version) == (Language.JAVA, 401)


def test_long_and_short_names_mean_the_same() -> None:
    call = SendLongNames(producer_group="g", topic="t", queue_id=2, born_timestamp=3, batch=True)
    assert wire.to_ext(call)["producerGroup"] == "g"
    assert wire.to_ext(call)["batch"] == "true"


def test_only_optional_fields_may_be_none() -> None:
    for struct in CALLS + REPLIES:
        for field in wire.HEADER_CODECS[struct].fields:
            assert field.optional == (NoneType in get_args(field.annotation))


class Sample(Reply, frozen=True, kw_only=True):
    queue_id: int = 3
    limited: Int | None = None
    region: str = msgspec.field(default='a"\n', name="MSG_REGION")
    on: bool = False
    off: bool | None = None


class Unfit(Reply, frozen=True, kw_only=True):
    names: list[str]


class WithoutFields(Reply, frozen=True, kw_only=True):
    pass


def test_code_remark_and_body_are_no_fields() -> None:
    assert [field.name for field in wire.HEADER_CODECS[Sample].fields] == [
        "queue_id", "limited", "region", "on", "off",
    ]  # fmt: skip
    assert wire.HEADER_CODECS[WithoutFields].fields == ()


def test_each_field_knows_its_wire_name_and_its_kind() -> None:
    fields = {
        f.wire_name: (f.kind, f.optional, f.required) for f in wire.HEADER_CODECS[Sample].fields
    }
    assert fields == {
        "queueId": (int, False, False),
        "limited": (int, True, False),
        "MSG_REGION": (str, False, False),
        "on": (bool, False, False),
        "off": (bool, True, False),
    }


def test_a_value_is_printed_as_strings_without_what_is_none() -> None:
    to_json = wire.HEADER_CODECS[Sample].to_json
    assert to_json(Sample()) == b'"queueId":"3","MSG_REGION":"a\\"\\n","on":"false"'
    whole = Sample(limited=-1, on=True, off=False)
    assert to_json(whole).endswith(b'"on":"true","limited":"-1","off":"false"')
    assert wire.HEADER_CODECS[WithoutFields].to_json(WithoutFields()) == b""


def test_the_compact_form_has_lengths_before_names_and_values() -> None:
    to_compact = wire.HEADER_CODECS[Sample].to_compact
    assert to_compact(Sample(queue_id=-12, region="é", limited=7)) == (
        b"\0\7queueId\0\0\0\3-12"
        b"\0\x0aMSG_REGION\0\0\0\2\xc3\xa9"
        b"\0\2on\0\0\0\5false"
        b"\0\7limited\0\0\0\0017"
    )
    assert wire.HEADER_CODECS[WithoutFields].to_compact(WithoutFields()) == b""
    long = "x" * 65_535
    assert b"\0\0\xff\xff" + long.encode() in to_compact(Sample(region=long))
    with pytest.raises(OverflowError):
        to_compact(Sample(region="x" * 65_536))


def test_texts_of_numbers_are_read() -> None:
    read = Sample(queue_id=5, limited=6, off=True)
    sent = {"queueId": "5", "limited": "6", "off": "TRUE"}
    assert wire.HEADER_CODECS[Sample].from_json(msgspec.json.encode(sent)) == read
    assert wire.HEADER_CODECS[Sample].from_packed(msgspec.msgpack.encode(sent)) == read


def test_a_shape_is_found_out_once() -> None:
    assert wire.HEADER_CODECS[Sample] is wire.HEADER_CODECS[Sample]


def test_other_types_than_text_number_and_truth_cannot_be_header_fields() -> None:
    with pytest.raises(TypeError, match="cannot be a header field"):
        wire.HEADER_CODECS[Unfit]
