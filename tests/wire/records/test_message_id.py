"""Message ids, against Java's."""

from datetime import UTC, datetime
from ipaddress import ip_address
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.vector_lines import vector_pairs

from roquet.model.errors import RecordError
from roquet.wire.records import message_id

pytestmark = pytest.mark.usefixtures("form")


def raw_host(fields: dict[str, Any]) -> bytes:
    port: int = fields["port"]
    return ip_address(fields["host"]).packed + port.to_bytes(4, "big")


@pytest.mark.parametrize(("given_", "text"), vector_pairs("records.jsonl", "message_id"))
def test_an_address_form_is_javas(given_: dict[str, Any], text: str) -> None:
    assert message_id.offset_message_id(raw_host(given_), given_["offset"]) == text


@pytest.mark.parametrize(("given_", "out"), vector_pairs("records.jsonl", "decode_message_id"))
def test_an_address_form_is_read_as_java_reads_it(given_: dict[str, Any], out: Any) -> None:
    if "error" in out:
        with pytest.raises(RecordError, match="not 32 or 56"):
            message_id.parse_offset_message_id(given_["id"])
    else:
        assert message_id.parse_offset_message_id(given_["id"]) == (raw_host(out), out["offset"])


@pytest.mark.parametrize(("given_", "out"), vector_pairs("records.jsonl", "uniq_id"))
def test_a_unique_key_tells_its_origin(given_: dict[str, Any], out: Any) -> None:
    ip, pid = message_id.unique_key_origin(given_["id"])
    assert (ip_address(ip), pid) == (ip_address(out["ip"]), out["pid"])


def test_a_unique_key_is_its_parts_in_order() -> None:
    key = message_id.unique_key(bytes([127, 0, 0, 1]), 3000, 0x18B4AAC2, 0x08A1B2C3, 1)
    assert key == "7F0000010BB818B4AAC208A1B2C30001"


@given(st.binary(min_size=4, max_size=4), st.integers(0, 2**40), st.integers(), st.integers(0))
def test_numbers_too_large_for_their_place_wrap(
    ip: bytes, pid: int, loader: int, counter: int
) -> None:
    key = message_id.unique_key(ip, pid, loader, counter, counter)
    assert len(key) == 32
    assert message_id.unique_key_origin(key)[1] == pid & 0xFFFF


@given(
    st.sampled_from([8, 20]).flatmap(lambda n: st.binary(min_size=n, max_size=n)),
    st.integers(0, 2**63 - 1),
)
def test_an_address_form_is_read_back(host: bytes, position: int) -> None:
    assert message_id.parse_offset_message_id(message_id.offset_message_id(host, position)) == (
        host,
        position,
    )


@pytest.mark.parametrize("text", ["", "ABC", "G" * 32, " " * 32, "0" * 30 + "  ", "7F" * 17])
def test_malformed_ids_are_refused(text: str) -> None:
    with pytest.raises(RecordError, match="message id"):
        message_id.parse_offset_message_id(text)


def test_milliseconds_are_counted_from_the_first_of_the_month() -> None:
    now = datetime(2024, 2, 29, 23, 59, 59, 999000, tzinfo=UTC)
    start = datetime(2024, 2, 1, tzinfo=UTC)
    assert message_id.month_start_ms(int(now.timestamp() * 1000)) == int(start.timestamp() * 1000)
    assert message_id.month_start_ms(int(start.timestamp() * 1000)) == int(start.timestamp() * 1000)


@given(st.sampled_from([8, 20]), st.lists(st.integers(0, 2**63 - 1), max_size=5))
def test_ids_of_several_positions_are_joined_by_commas(size: int, positions: list[int]) -> None:
    host = bytes(range(200, 200 + size))
    expected = ",".join(message_id.offset_message_id(host, position) for position in positions)
    assert message_id.offset_message_ids(host, positions) == expected
