"""Signatures of RocketMQ 5's clients."""

from hypothesis import given
from hypothesis import strategies as st

from roquet.wire.proxy_signing import authorization, parse_authorization

DATE = "20261130T042351Z"
SIGNED = "f4a5c0b1d0ae3ac5f2ab6d2f6f6d3ce9d1c3bb39"

keys = st.text("abcdefghijklmnop0123456789-_%", min_size=1)


def test_the_header_of_an_official_client_is_read() -> None:
    header = (
        f"MQv2-HMAC-SHA1 Credential=alice/cn/mq, SignedHeaders=x-mq-date-time, Signature={SIGNED}"
    )
    parsed = parse_authorization(header)
    assert (parsed.access_key, parsed.signature) == ("alice", SIGNED)


def test_a_header_that_is_none_names_nobody() -> None:
    for header in ("", "Bearer x", "MQv2-HMAC-SHA1 Credential=, Signature=", "a b=c,,=,="):
        assert parse_authorization(header).access_key == ""


@given(keys, keys, keys)
def test_who_knows_the_secret_signs_a_date(access_key: str, secret: str, other: str) -> None:
    header = authorization(access_key, secret, DATE)
    parsed = parse_authorization(header)
    assert parsed.access_key == access_key
    assert parsed.is_by(secret, DATE)
    assert (
        parse_authorization(header.replace("Signature=", "Signature=0")).is_by(secret, DATE)
        is False
    )
    assert parsed.is_by(secret, DATE + "0") is False
    assert parsed.is_by(other, DATE) is (other == secret)


def test_the_case_of_a_signature_does_not_count() -> None:
    head, _, signature = authorization("a", "s", DATE).rpartition("=")
    assert parse_authorization(f"{head}={signature.upper()}").is_by("s", DATE)
