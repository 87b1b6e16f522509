import json
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.model.errors import FieldError
from roquet.model.topic import DataVersion, TopicConfig
from roquet.wire import dialect, registration
from roquet.wire.calls.bodies import RegisterBrokerBody

VECTORS = Path(__file__).parents[1] / "vectors" / "registrations.jsonl"


def genuine(form: str) -> dict[str, Any]:
    lines = [json.loads(line) for line in VECTORS.read_text("ascii").splitlines()]
    out: dict[str, Any] = next(line["out"] for line in lines if line["in"]["form"] == form)
    return out


def test_a_genuine_compressed_registration_reads_as_its_json_does() -> None:
    vector = genuine("compressed")
    compact = registration.decode(bytes.fromhex(vector["hex"]), compressed=True)
    plain = registration.decode(vector["text"].encode(), compressed=False)
    wrapper = compact.topic_config_serialize_wrapper
    assert wrapper.topic_config_table == plain.topic_config_serialize_wrapper.topic_config_table
    assert wrapper.data_version == DataVersion(timestamp=1_700_000_000_000)
    assert compact.filter_server_list == plain.filter_server_list == ["127.0.0.1:10"]


def test_the_genuine_checksum_is_of_the_compressed_bytes() -> None:
    vector = genuine("compressed")
    assert registration.checksum(bytes.fromhex(vector["hex"])) == vector["crc32"]


def test_a_genuine_json_registration_keeps_topics_and_edition() -> None:
    body = registration.decode(genuine("default")["text"].encode(), compressed=False)
    wrapper = body.topic_config_serialize_wrapper
    assert wrapper.data_version.counter == 189
    assert wrapper.topic_config_table["Topic5"].write_queue_nums == 172


def test_an_empty_body_registers_no_topics() -> None:
    assert registration.decode(b"", compressed=True) == RegisterBrokerBody()


def part(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def squeezed(topics: list[TopicConfig], *, attributes: bool = True) -> bytes:
    """The layout written from its description: only genuine brokers send it."""
    lines = [
        f"{t.topic_name} {t.read_queue_nums} {t.write_queue_nums} {t.perm} {t.topic_filter_type}"
        + (f" {json.dumps(t.attributes)}" if attributes else "")
        for t in topics
    ]
    data = part(dialect.dumps(DataVersion(counter=3))) + struct.pack(">i", len(topics))
    data += b"".join(part(line.encode()) for line in lines) + part(b"[]") + bytes(4)
    return zlib.compress(data)


names = st.text("abc-_%|", min_size=1)
configs = st.builds(
    TopicConfig,
    topic_name=names,
    read_queue_nums=st.integers(0, 2**31 - 1),
    write_queue_nums=st.integers(0, 2**31 - 1),
    perm=st.integers(0, 15),
    attributes=st.dictionaries(st.text("a +-"), st.text("a +-")),
)


@given(st.lists(configs, unique_by=lambda config: config.topic_name))
def test_every_topic_of_a_compressed_registration_comes_back(topics: list[TopicConfig]) -> None:
    body = registration.decode_compact(squeezed(topics))
    assert list(body.topic_config_serialize_wrapper.topic_config_table.values()) == topics


def test_brokers_before_5_write_no_attributes() -> None:
    topic = TopicConfig(topic_name="t")
    body = registration.decode_compact(squeezed([topic], attributes=False))
    assert body.topic_config_serialize_wrapper.topic_config_table == {"t": topic}


@pytest.mark.parametrize(
    "damage",
    [
        b"not zlib",
        zlib.compress(b""),
        zlib.compress(part(b"{}") + struct.pack(">i", 1) + part(b"T 4")),
        zlib.compress(struct.pack(">i", 99) + b"{}"),
        zlib.compress(struct.pack(">i", -1)),
        squeezed([TopicConfig(topic_name="t")])[:-8],
    ],
)
def test_a_damaged_registration_is_the_peers_fault(damage: bytes) -> None:
    with pytest.raises(FieldError, match="registration is damaged"):
        registration.decode_compact(damage)
