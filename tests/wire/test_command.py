"""Commands in both forms, against frames that Java made."""

import struct
import sys
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.for_each import for_each
from tests.vector_lines import vector_pairs

from roquet.model.errors import FieldError, RemoteProtocolError
from roquet.wire.codes import Language, RequestCode, SerializeType
from roquet.wire.command import (
    JSON,
    ROCKETMQ,
    Command,
    decode,
    decode_large,
    decode_whole,
    encode,
    java_text,
)
from roquet.wire.compact import TRUNCATED
from roquet.wire.frame import (
    FRAME_SIZE_MAX,
    HEADER_READ_MAX,
    FrameReader,
    LargeFrame,
    header_end,
    join_frame,
)

ENCODED = vector_pairs("headers.jsonl", "encode")
DECODED = vector_pairs("headers.jsonl", "decode")

pytestmark = pytest.mark.usefixtures("form")

DEEP = 9_000 if sys.version_info < (3, 13) else 90_000
"""Levels that the first look at a header takes, and the second does not. Python 3.13 takes 9,000 as
the text of a value, and from 3.14 on only the thread's stack limits them."""

filled = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)
ints = st.integers(-(2**31), 2**31 - 1)
commands = st.builds(
    Command,
    code=st.integers(-1006, 3444),
    language=st.sampled_from(Language),
    version=st.integers(0, 2**15 - 1),
    opaque=ints,
    flag=ints.filter(lambda flag: flag & 1),
    remark=st.none() | filled,
    fields=st.dictionaries(filled, filled, max_size=5),
    body=st.binary(max_size=20),
    serialize_type=st.sampled_from(SerializeType),
)


def only_frame(stream: bytes) -> bytes:
    (frame,) = FrameReader().feed(stream)
    return frame


def facts(command: Command) -> dict[str, Any]:
    return {name: getattr(command, name) for name in (*Command.__struct_fields__, "ext")} | {
        "fields": None
    }


def json_frame(header: str | bytes, body: bytes = b"") -> bytes:
    raw = header if isinstance(header, bytes) else header.encode()
    return only_frame(join_frame(raw, body))


def expect(command: Command, given: dict[str, Any], ext: dict[str, str] | None) -> None:
    """Compare with Java's command; an empty value equals an absent one."""
    assert command.code == given["code"]
    assert command.version == given["version"]
    assert command.flag == given["flag"]
    assert (command.remark or None) == (given["remark"] or None)
    assert {k: v for k, v in command.ext.items() if v} == {
        k: v for k, v in (ext or {}).items() if v
    }
    expected = given["language"] or "OTHER"
    assert command.language == Language[expected]


@for_each(ENCODED)
def test_json_frames_of_java_are_understood(given_: dict[str, Any], out: dict[str, Any]) -> None:
    body = bytes.fromhex(given_["body"] or "")
    prefix, header = bytes.fromhex(out["json_prefix"]), out["json_header"].encode()
    command = decode(only_frame(prefix + header + body))
    expect(command, given_, out["ext"])
    assert (command.opaque, command.body) == (given_["opaque"], body)
    assert facts(decode(only_frame(encode(command)))) == facts(command)


@for_each(ENCODED)
def test_compact_frames_of_java_are_understood(given_: dict[str, Any], out: dict[str, Any]) -> None:
    body, whole = bytes.fromhex(given_["body"] or ""), bytes.fromhex(out["binary_header"])
    command = decode(only_frame(whole + body))
    if given_["flag"] & 1:  # only the truncated code of a request can be restored
        given_ = given_ | {"code": given_["code"] & 0xFFFF}
    expect(command, given_, out["ext"])
    assert (command.opaque, command.body) == (given_["opaque"], body)
    assert facts(decode(only_frame(encode(command)))) == facts(command)
    if all(out["ext"].values()) if out["ext"] else True:
        assert encode(command) == whole + body, "the very bytes that Java writes"


@for_each(DECODED)
def test_odd_frames_are_read_as_java_reads_them(
    given_: dict[str, Any], out: dict[str, Any]
) -> None:
    frame = only_frame(bytes.fromhex(given_["frame"]))
    if "error" in out:
        with pytest.raises(RemoteProtocolError):
            decode(frame)
        return
    command = decode(frame)
    if out["code"] in TRUNCATED:  # Java's broker does not know it any more; ours does
        out = out | {"code": TRUNCATED[out["code"]]}
    expect(command, out, out["ext"])
    assert command.opaque == (0 if out["opaque"] == "counter" else out["opaque"])
    assert command.body == bytes.fromhex(out["body"] or "")
    assert command.serialize_type == SerializeType[out["serialize_type"]]


@given(commands)
def test_encoded_values_decode(command: Command) -> None:
    assert facts(decode(only_frame(encode(command)))) == facts(command)


@given(commands)
def test_a_large_frame_decodes_as_if_it_were_in_one_piece(command: Command) -> None:
    frame = only_frame(encode(command))
    end = header_end(frame)
    apart = LargeFrame(frame[:end], frame[end:], b"")
    assert facts(decode_large(apart)) == facts(command)


@given(st.lists(commands, max_size=4), st.integers(1, 50))
def test_any_split_gives_the_same_commands(sent: list[Command], step: int) -> None:
    stream = b"".join(map(encode, sent))
    reader = FrameReader()
    chunks = [stream[at : at + step] for at in range(0, len(stream), step)]
    got = [decode(frame) for chunk in chunks for frame in reader.feed(chunk)]
    assert [facts(command) for command in got] == [facts(command) for command in sent]


@given(st.lists(commands, max_size=4), st.data())
def test_a_chunk_of_whole_frames_is_decoded_at_once(
    sent: list[Command], data: st.DataObject
) -> None:
    stream = b"".join(map(encode, sent))
    got = decode_whole(stream, FRAME_SIZE_MAX)
    assert got is not None
    assert [facts(command) for command in got] == [facts(command) for command in sent]
    if stream:
        size = data.draw(st.integers(1, len(stream)))
        cut = decode_whole(stream[:-size], FRAME_SIZE_MAX)
        assert cut is None or len(cut) < len(sent)


def test_a_frame_over_the_limit_in_a_chunk_is_the_peers_fault() -> None:
    with pytest.raises(RemoteProtocolError, match="over the limit 16"):
        decode_whole(encode(Command(1)) + encode(Command(2)), 16)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_command_or_the_peers_fault(frame: bytes) -> None:
    with suppress(RemoteProtocolError):
        assert isinstance(decode(frame), Command)


@given(commands, st.data())
def test_a_damaged_command_is_a_command_or_the_peers_fault(
    command: Command, data: st.DataObject
) -> None:
    whole = bytearray(encode(command))
    at = data.draw(st.integers(4, len(whole) - 1))
    whole[at] = data.draw(st.integers(0, 255))
    try:
        assert decode(only_frame(bytes(whole))).ext is not None
    except (RemoteProtocolError, FieldError):
        return


def test_a_header_may_hold_numbers_booleans_and_nulls() -> None:
    command = decode(
        json_frame('{"code":11,"extFields":{"a":3,"b":true,"c":null,"d":1.50,"e":{}}}\n')
    )
    assert command.ext == {"a": "3", "b": "true", "d": "1.50", "e": "{}"}


def test_a_json_header_needs_nothing() -> None:
    command = decode(json_frame("{}"))
    assert (command.code, command.opaque, command.flag, command.ext) == (0, 0, 0, {})
    assert (command.language, command.version, command.remark) == (Language.JAVA, 0, None)


@pytest.mark.parametrize("language", ['"NO_SUCH"', "null", "77", '"java"'])
def test_an_unknown_language_is_other(language: str) -> None:
    assert decode(json_frame(f'{{"language":{language}}}')).language == Language.OTHER


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"not json",
        b"[]",
        b'{"code":"x"}',
        b'{"code":true}',
        b'{"code":1.5}',
        b'{"code":null}',
        b'{"opaque":2147483648}',
        b'{"code":10,"opaque":9999999999}',
        b'{"code":10,"opaque":-2147483649}',
        b'{"code":10,"version":4294967296}',
        b'{"code":10,"flag":99999999999999999999}',
        b'{"code":2147483648,"remark":"\\ud800"}',
        b'{"code":1}{}',
        b'{"code":1',
        b'{"remark":5}',
        b'{"x":' + b"[" * 1_000_000 + b"]" * 1_000_000 + b"}",
    ],
)
def test_a_broken_json_header_is_the_peers_fault(header: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="JSON"):
        decode(json_frame(header))


@pytest.mark.parametrize("fields", ["[]", "5", '"x"', '{"a":' + "[" * DEEP + "]" * DEEP + "}"])
def test_broken_fields_spoil_the_call_and_not_the_connection(fields: str) -> None:
    header = b'{"code":1,"extFields":' + fields.encode("latin-1") + b"}"
    try:
        command = decode(json_frame(header))
    except RemoteProtocolError:
        return  # nested too deep for a parser
    with pytest.raises(FieldError, match="code 1"):
        _ = command.ext


@pytest.mark.parametrize("number", [2**31 - 1, -(2**31), 0, -1])
def test_numbers_of_a_header_have_32_bits_as_in_java(number: int) -> None:
    command = decode(json_frame(f'{{"code":10,"opaque":{number},"version":{number}}}'))
    assert (command.opaque, command.version) == (number, number)


def test_fields_that_are_no_json_spoil_the_call() -> None:
    with pytest.raises(FieldError, match="code 1: extFields are not JSON"):
        Command(code=1, fields=msgspec.Raw(b'{"a":')).loose()


def test_the_last_of_two_equal_names_counts() -> None:
    command = decode(json_frame('{"code":1,"code":2,"extFields":{"a":"x","a":"y"}}'))
    assert (command.code, command.ext) == (2, {"a": "y"})


def compact(*parts: bytes) -> bytes:
    return only_frame(join_frame(b"".join(parts), b"", ROCKETMQ))


HEAD = struct.pack(">hBhii", 31, 1, 479, 5, 0)


@pytest.mark.parametrize(
    "header",
    [
        b"",
        HEAD,
        HEAD + struct.pack(">ii", -1, 0),
        HEAD + struct.pack(">ii", 1, 0),
        HEAD + struct.pack(">ii", 0, 1),
        HEAD + struct.pack(">ii", 0, -1),
        HEAD + struct.pack(">ii", 0, 1) + b"\0",
        HEAD + struct.pack(">iih", 0, 2, 0),
        HEAD + struct.pack(">iihi", 0, 6, -1, 0),
        HEAD + struct.pack(">iihi", 0, 6, 0, 9),
    ],
)
def test_a_compact_header_whose_lengths_lie_is_the_peers_fault(header: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="broken compact header"):
        decode(compact(header))


GBK = "标签".encode("gbk")
AS_JAVA_READS_IT = "\ufffd\ufffd\u01e9"


def test_bytes_that_are_not_utf_8_are_read_as_java_reads_them() -> None:
    header = b'{"code":1,"remark":"%b","extFields":{"i":"%b","%b":"v"}}' % (GBK, GBK, GBK)
    command = decode(json_frame(header))
    expected = {"i": AS_JAVA_READS_IT, AS_JAVA_READS_IT: "v"}
    assert (command.remark, command.ext) == (AS_JAVA_READS_IT, expected)
    assert decode(json_frame(b'{"code":1,"extFields":{"i":"\xff"}}')).ext == {"i": "\ufffd"}
    pairs = struct.pack(">h1si4s", 1, b"i", 4, GBK) + struct.pack(">h4si1s", 4, GBK, 1, b"v")
    plain = decode(compact(HEAD, struct.pack(">ii", 0, len(pairs)), pairs))
    assert plain.ext == expected
    remark = decode(compact(HEAD, struct.pack(">i4si", 4, GBK, len(pairs)), pairs))
    assert (remark.remark, remark.ext) == (AS_JAVA_READS_IT, expected)


def test_empty_compact_values_are_absent() -> None:
    pairs = struct.pack(">h1si", 1, b"k", 0) + struct.pack(">hi1s", 0, 1, b"v")
    command = decode(compact(HEAD, struct.pack(">ii", 0, len(pairs)), pairs))
    assert (command.ext, command.remark) == ({}, None)


@for_each(TRUNCATED.values())
def test_pop_codes_survive_the_sixteen_bits_of_the_compact_form(code: int) -> None:
    request = Command(RequestCode(code), serialize_type=ROCKETMQ)
    assert decode(only_frame(encode(request))).code == code


def test_a_truncated_code_is_only_restored_in_requests() -> None:
    answer = Command(3442, flag=1, serialize_type=ROCKETMQ)
    assert decode(only_frame(encode(answer))).code == 3442


def test_no_truncated_code_is_taken_by_another_request() -> None:
    assert set(TRUNCATED) >= {3442, 3443, 3444, 3445, 3446, 3447, 3448, 3543}
    assert not set(TRUNCATED) & set(RequestCode)


def test_a_header_of_unknown_kind_is_the_peers_fault() -> None:
    with pytest.raises(RemoteProtocolError, match="kind 2"):
        decode(only_frame(join_frame(b"{}", b"", 2)))


def test_the_flag_says_whether_it_is_an_answer_or_wants_one() -> None:
    assert Command(10, flag=1).is_response
    assert Command(10, flag=2).is_oneway
    assert not Command(10).is_response
    assert not Command(10).is_oneway


def test_half_a_surrogate_pair_survives() -> None:
    command = Command(10, remark="\ud800", fields={"a": "\x01é\ud83d"})
    whole = encode(command)
    assert whole[4:].isascii()
    assert facts(decode(only_frame(whole))) == facts(command)


def test_the_compact_form_makes_a_question_mark_of_half_a_surrogate_pair_as_java_does() -> None:
    command = Command(10, remark="\ud800", fields={"a": "\ud83d"}, serialize_type=ROCKETMQ)
    arrived = decode(only_frame(encode(command)))
    assert (arrived.remark, arrived.ext) == ("?", {"a": "?"})


@pytest.mark.parametrize(
    ("value", "text"), [("x", "x"), (True, "true"), (False, "false"), (5, "5"), ([1, {}], "[1,{}]")]
)
def test_a_value_is_printed_as_java_prints_it(value: object, text: str) -> None:
    assert java_text(value) == text


def test_the_plain_numbers_are_those_of_the_enum() -> None:
    assert (JSON, ROCKETMQ) == (SerializeType.JSON, SerializeType.ROCKETMQ)


@pytest.mark.parametrize("kind", [JSON, ROCKETMQ])
def test_a_header_over_the_limit_is_refused_unread(kind: int) -> None:
    size = HEADER_READ_MAX + 1
    header = bytes(21 - 4) + struct.pack(">i", size - 21) + bytes(size - 21)
    frame = only_frame(join_frame(header, b"", kind))
    with pytest.raises(RemoteProtocolError, match="over the limit 262144"):
        decode(frame)
