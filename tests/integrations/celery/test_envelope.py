"""Messages of kombu as bytes, and the times in them."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.integrations.celery.envelope import decode, due_ms, encode, is_expired
from roquet.net.clock import SYSTEM_CLOCK


def payload(body: bytes | str, **headers: Any) -> dict[str, Any]:
    return {
        "body": body,
        "content-type": "application/json",
        "content-encoding": "utf-8",
        "headers": headers,
        "properties": {"delivery_info": {"exchange": "", "routing_key": "celery"}},
    }


@given(st.binary(), st.dictionaries(st.text(), st.text() | st.integers() | st.none()))
def test_a_message_comes_out_as_it_went_in(body: bytes, headers: dict[str, Any]) -> None:
    sent = {**payload(body), "headers": headers}
    assert decode(encode(sent)) == sent


def test_times_in_headers_keep_their_type() -> None:
    now = datetime.fromtimestamp(SYSTEM_CLOCK.now_ms() / 1000, UTC)
    assert decode(encode(payload(b"", since=now)))["headers"] == {"since": now}


@given(st.binary())
def test_bytes_of_others_are_a_value_error(raw: bytes) -> None:
    with pytest.raises(ValueError, match="no message of kombu"):
        decode(raw)


def head(**properties: Any) -> bytes:
    whole = payload(b"")
    return encode({**whole, "properties": {**whole["properties"], **properties}})


@pytest.mark.parametrize(
    "raw",
    [
        head(body_encoding="unknown"),
        head(expiration=float("inf")),
        head(expiration="soon"),
        head(priority="high"),
        head(priority=[1]),
        b"",
        b"[]\n",
        b"{}\nbody",
        b'{"properties": {"delivery_info": {"exchange": 1, "routing_key": "q"}}}\n',
        b'{"properties": {"delivery_info": []}}\n',
        b'{"content-type": [], "content-encoding": null, "headers": {}, "properties": '
        b'{"delivery_info": {"exchange": "", "routing_key": "q"}}}\n',
        b'{"__type__": "uuid", "__value__": 7}\n',
        b'{"headers": {"__type__": "unknown", "__value__": ""}}\n',
        b"[" * 100_000,
    ],
)
def test_hostile_envelopes_are_a_value_error(raw: bytes) -> None:
    with pytest.raises(ValueError, match="no message of kombu"):
        decode(raw)


def test_a_task_is_due_at_its_eta_and_never_a_millisecond_before() -> None:
    assert due_ms({"eta": "2030-01-01T00:00:00.000001+00:00"}) == 1_893_456_000_001
    assert due_ms({"eta": "2030-01-01T01:00:00+01:00"}) == 1_893_456_000_000


@pytest.mark.parametrize("eta", [None, "", "soon", 5, "2030-01-01T00:00:00", "0001-01-01T00:00+14"])
def test_a_time_that_says_nothing_to_a_broker_is_left_to_the_worker(eta: object) -> None:
    assert due_ms({"eta": eta}) <= 0
    assert due_ms({}) == due_ms(None) == 0


def test_a_message_expires_after_its_producers_time() -> None:
    lives = {"properties": {"expiration": "2000"}, "headers": {}}
    assert not is_expired({**lives, "headers": {"task": "t"}}, 1_000, 3_000)
    assert is_expired(lives, 1_000, 3_000)
    assert not is_expired(lives, 1_000, 2_999)
    assert not is_expired({"properties": {}}, 1_000, 9_000)
    with pytest.raises(ValueError, match="soon"):
        is_expired({"properties": {"expiration": "soon"}, "headers": {}}, 1_000, 9_000)
