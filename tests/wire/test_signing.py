"""Signed requests, compared with Java's AclClientRPCHook."""

from base64 import b64encode
from hmac import digest
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.vector_lines import vector_lines

from roquet.wire.calls.offset import MinOffset
from roquet.wire.calls.route import GetRoute
from roquet.wire.calls.send import Send
from roquet.wire.codes import FLAG_ONEWAY, VERSION, SerializeType
from roquet.wire.command import decode
from roquet.wire.fields import decode_call
from roquet.wire.frame import FrameReader
from roquet.wire.signing import VERSION_WITHOUT_UNIQUE, Credentials, Signer, SigningKey

LINES = vector_lines("sign.jsonl")
KEYS = Credentials(access_key="ak", secret_key="sk", security_token="token")


def expected(ext: dict[str, str], body: bytes, secret: str = "sk") -> str:
    """Signature that a server computes from the received fields."""
    values = "".join(ext[name] for name in sorted(ext) if name != "Signature")
    return b64encode(digest(secret.encode(), values.encode() + body, "sha1")).decode()


@pytest.mark.parametrize("line", LINES, ids=lambda line: line["in"]["access_key"])
def test_signatures_are_javas(line: dict[str, Any]) -> None:
    request, out = line["in"], line["out"]
    keys = {name: request[name] for name in ("access_key", "secret_key", "security_token")}
    body = bytes.fromhex(request["body"] or "")
    assert Signer(Credentials(**keys)).sign(request["ext"], body) == out["ext"]


@pytest.mark.parametrize("kind", SerializeType)
def test_both_serialisations_carry_a_signature_that_holds(kind: int) -> None:
    call = Send(
        body=b"\x00body", producer_group="g", topic="käse", queue_id=1, born_timestamp=7,
        properties="", unit_mode=True,
    )  # fmt: skip
    frame = Signer(KEYS).encode_call(call, opaque=9, serialize_type=kind)
    (whole,) = FrameReader().feed(frame)
    command = decode(whole)
    assert command.opaque == 9
    assert decode_call(command, Send) == call
    ext = command.ext
    assert (ext["AccessKey"], ext["SecurityToken"]) == ("ak", "token")
    assert ext["Signature"] == expected(ext, call.body)


def test_oneway_calls_are_signed_as_well() -> None:
    frame = Signer(KEYS).encode_call(MinOffset(topic="t", queue_id=0), opaque=1, oneway=True)
    (whole,) = FrameReader().feed(frame)
    command = decode(whole)
    assert command.flag == FLAG_ONEWAY
    assert command.ext["Signature"] == expected(command.ext, b"")


def test_the_compact_form_leaves_empty_values_out_which_java_would_read_as_null() -> None:
    call = Send(body=b"b", producer_group="g", topic="t", queue_id=0, born_timestamp=0)
    frame = Signer(KEYS).encode_call(call, opaque=1, serialize_type=SerializeType.ROCKETMQ)
    (whole,) = FrameReader().feed(frame)
    assert "i" not in decode(whole).ext
    assert call.properties == ""


def test_half_a_surrogate_pair_is_signed_as_java_does() -> None:
    signed = Signer(KEYS).sign({"topic": "a\ud800"}, b"")
    assert signed["Signature"] == expected({**signed, "topic": "a?"}, b"")


def test_a_signature_that_is_there_already_does_not_count() -> None:
    signer = Signer(KEYS)
    once = signer.sign({"topic": "t"}, b"b")
    assert signer.sign(once, b"b") == once


@given(st.dictionaries(st.text(max_size=5), st.text(max_size=9), max_size=6), st.binary())
def test_a_change_of_any_value_breaks_the_signature(ext: dict[str, str], body: bytes) -> None:
    signer = Signer(Credentials(access_key="a", secret_key="s"))
    ext = {name: value.encode(errors="replace").decode() for name, value in ext.items()}
    signed = signer.sign(ext, body)
    for name in ext.keys() - {"AccessKey", "Signature"}:
        assert signer.sign({**ext, name: ext[name] + "x"}, body) != signed
    assert signer.sign(ext, body + b"x")["Signature"] != signed["Signature"]


def test_the_secret_is_not_printed() -> None:
    printed = f"{KEYS!r} {KEYS} {KEYS.__rich_repr__()}"
    assert "sk" not in printed
    assert "ak" in printed


def test_no_token_no_field() -> None:
    frame = Signer(Credentials(access_key="a", secret_key="s")).encode_call(
        GetRoute(topic="t"), opaque=1
    )
    (whole,) = FrameReader().feed(frame)
    assert "SecurityToken" not in decode(whole).ext


@pytest.mark.parametrize("line", LINES, ids=lambda line: line["in"]["access_key"])
def test_javas_signatures_are_accepted_and_others_are_not(line: dict[str, Any]) -> None:
    body = bytes.fromhex(line["in"].get("body") or "")
    signed, secret = line["out"]["ext"], line["in"]["secret_key"]
    assert SigningKey(secret).has_signed(signed, body, VERSION)
    assert not SigningKey(secret + "x").has_signed(signed, body, VERSION)
    for forged in ("", "\u00e4\ud800"):
        assert not SigningKey(secret).has_signed({**signed, "Signature": forged}, body, VERSION)


def test_older_clients_leave_the_mark_of_a_unique_key_unsigned() -> None:
    fields = Signer(KEYS).sign({"topic": "t"}, b"")
    marked = {**fields, "_UNIQUE_KEY_QUERY": "true"}
    key = SigningKey(KEYS.secret_key)
    assert key.has_signed(marked, b"", VERSION_WITHOUT_UNIQUE)
    assert not key.has_signed(marked, b"", VERSION)


@given(st.text(min_size=1, max_size=200), st.binary(max_size=300))
def test_keys_of_any_length_sign_as_hmac_does(secret: str, body: bytes) -> None:
    signature = b64encode(digest(secret.encode(), b"t" + body, "sha1")).decode()
    assert SigningKey(secret).signature({"topic": "t"}, body) == signature


def test_a_key_is_not_printed() -> None:
    assert "hush" not in f"{SigningKey('hush-hush')!r}"


def test_what_strangers_send_does_not_fill_the_memory_of_a_key() -> None:
    key = SigningKey("s")
    before = key.signature({"a": "1", "b": "2"}, b"")
    for number in range(1_000):
        assert not key.has_signed({f"x{number}": "", "y" * 2_000: ""}, b"", VERSION)
        assert not key.has_signed({f"x{number}": ""}, b"", VERSION)
    assert key.signature({"b": "2", "a": "1"}, b"") == before
    assert key.signature({}, b"") == b64encode(digest(b"s", b"", "sha1")).decode()
