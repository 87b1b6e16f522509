"""Messages of kombu as bytes, and the times in them."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.integrations.celery.envelope import decode, due_ms, encode
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


def head(properties: str, headers: str = "{}") -> bytes:
    """The first line of a message whose properties are those and a route, both as JSON."""
    route = '"delivery_info": {"exchange": "", "routing_key": "q"}'
    return (
        f'{{"content-type": null, "content-encoding": null, "headers": {headers}, '
        f'"properties": {{{route}, {properties}}}}}\n'
    ).encode()


def test_a_first_line_may_have_properties_that_nobody_knows() -> None:
    assert decode(head('"unknown": [1]'))["properties"]["unknown"] == [1]


@pytest.mark.parametrize(
    "raw",
    [
        head('"body_encoding": "unknown"'),
        head('"priority": "high"'),
        head('"priority": [1]'),
        head('"reply_to": 5'),
        head('"priority": Infinity'),
        head('"priority": {"__type__": "decimal", "__value__": "1E999999999"}'),
        head('"priority": ' + "9" * 5_000),
        head('"x": 1', "[]"),
        head('"x": 1', '{"__type__": "unknown", "__value__": ""}'),
        b"",
        b"[]\n",
        b"{}\nbody",
        b'{"properties": {"delivery_info": {"exchange": 1, "routing_key": "q"}}}\n',
        b'{"properties": {"delivery_info": []}}\n',
        b'{"content-type": [], "content-encoding": null, "headers": {}, "properties": '
        b'{"delivery_info": {"exchange": "", "routing_key": "q"}}}\n',
        b'{"__type__": "uuid", "__value__": 7}\n',
        b"[" * 100_000,
    ],
)
def test_hostile_envelopes_are_a_value_error(raw: bytes) -> None:
    with pytest.raises(ValueError, match="no message of kombu"):
        decode(raw)


@pytest.mark.parametrize("priority", ["high", [1], 1.5])
def test_what_no_consumer_could_read_is_refused_before_it_is_sent(priority: object) -> None:
    sent = payload(b"")
    sent["properties"]["priority"] = priority
    with pytest.raises(ValueError, match=r"priority|high"):
        encode(sent)


def test_a_task_is_due_at_its_eta_and_never_a_millisecond_before() -> None:
    assert due_ms({"eta": "2030-01-01T00:00:00.000001+00:00"}) == 1_893_456_000_001
    assert due_ms({"eta": "2030-01-01T01:00:00+01:00"}) == 1_893_456_000_000


@pytest.mark.parametrize("eta", [None, "", "soon", 5, "2030-01-01T00:00:00", "0001-01-01T00:00+14"])
def test_a_time_that_says_nothing_to_a_broker_is_left_to_the_worker(eta: object) -> None:
    assert due_ms({"eta": eta}) <= 0
    assert due_ms({}) == due_ms(None) == 0
