import json
import struct
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.vector_lines import vector_lines

from roquet.model.errors import FieldError
from roquet.model.topic import DataVersion, TopicConfig
from roquet.wire import registration
from roquet.wire.calls.bodies import RegisterBrokerBody
from roquet.wire.fastjson import codec


def vector_of(form: str) -> dict[str, Any]:
    lines = vector_lines("registrations.jsonl")
    out: dict[str, Any] = next(line["out"] for line in lines if line["in"]["form"] == form)
    return out


def test_a_genuine_compressed_registration_reads_as_its_json_does() -> None:
    vector = vector_of("compressed")
    compact = registration.decode(bytes.fromhex(vector["hex"]), compressed=True)
    plain = registration.decode(vector["text"].encode(), compressed=False)
    wrapper = compact.topic_config_serialize_wrapper
    assert wrapper.topic_config_table == plain.topic_config_serialize_wrapper.topic_config_table
    assert wrapper.data_version == DataVersion(timestamp=1_700_000_000_000)
    assert compact.filter_server_list == plain.filter_server_list == ["127.0.0.1:10"]


def test_the_genuine_checksum_is_of_the_compressed_bytes() -> None:
    vector = vector_of("compressed")
    assert registration.checksum(bytes.fromhex(vector["hex"])) == vector["crc32"]


def test_a_genuine_json_registration_keeps_topics_and_edition() -> None:
    body = registration.decode(vector_of("default")["text"].encode(), compressed=False)
    wrapper = body.topic_config_serialize_wrapper
    assert wrapper.data_version.counter == 189
    assert wrapper.topic_config_table["Topic5"].write_queue_nums == 172


def test_an_empty_body_registers_no_topics() -> None:
    assert registration.decode(b"", compressed=True) == RegisterBrokerBody()


def part(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def squeezed(topics: list[TopicConfig], *, attributes: bool = True) -> bytes:
    """Encode the layout by its description: only Apache's brokers send it."""
    lines = [
        f"{t.topic_name} {t.read_queue_nums} {t.write_queue_nums} {t.perm} {t.topic_filter_type}"
        + (f" {json.dumps(t.attributes)}" if attributes else "")
        for t in topics
    ]
    data = part(codec.dumps(DataVersion(counter=3))) + struct.pack(">i", len(topics))
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
    body = registration.decode(squeezed(topics), compressed=True)
    assert list(body.topic_config_serialize_wrapper.topic_config_table.values()) == topics


def test_brokers_before_5_write_no_attributes() -> None:
    topic = TopicConfig(topic_name="t")
    body = registration.decode(squeezed([topic], attributes=False), compressed=True)
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
        registration.decode(damage, compressed=True)


def plain(topics: dict[str, Any], **others: Any) -> bytes:
    """A registration in JSON that is long enough to be decoded topic by topic."""
    wrapper = {"topicConfigTable": topics, "dataVersion": {"counter": 7}, "mapping": {}}
    body = {"filterServerList": ["h:1"], "topicConfigSerializeWrapper": wrapper, "new": [1]}
    return json.dumps({**body, **others}, separators=(",", ":")).encode()


MANY = {
    f"t{n:04}": {"topicName": f"t{n:04}", "perm": "6", "attributes": {"+a": "b" * 80}}
    for n in range(1_000)
}


def test_a_long_registration_reads_as_a_short_one_does() -> None:
    body = registration.decode(plain(MANY), compressed=False)
    assert len(plain(MANY)) > registration.PLAIN_SIZE_MAX
    wrapper = body.topic_config_serialize_wrapper
    assert len(wrapper.topic_config_table) == 1_000
    expected = TopicConfig(topic_name="t0007", attributes={"+a": "b" * 80})
    assert wrapper.topic_config_table["t0007"] == expected
    assert wrapper.data_version.counter == 7
    assert body.filter_server_list == ["h:1"]


def test_a_long_registration_is_decoded_in_slices() -> None:
    slices = list(registration.decode_slices(plain(MANY), compressed=False))
    assert len(slices) == len(plain(MANY)) // registration.SLICE_SIZE
    lines = [TopicConfig(topic_name=name) for name in MANY]
    unfolded = registration.decompress(squeezed(lines))
    assert len(list(registration.decode_slices(unfolded, compressed=True))) == 4


@pytest.mark.parametrize("before", ["", '"topicConfigSerializeWrapper":'])
def test_members_that_mean_nothing_are_skipped_in_slices(before: str) -> None:
    members = ",".join(f'"{n}":1' for n in range(60_000))
    body = f"{{{before}{{{members}}}}}" if before else f"{{{members}}}"
    slices = list(registration.decode_slices(body.encode(), compressed=False))
    assert len(slices) >= len(body) // registration.SLICE_SIZE - 1


def test_a_topic_in_a_long_registration_is_read_as_tolerantly() -> None:
    odd = {"topicName": "odd", "attributes": None, "perm": 6.0, "order": "true"}
    body = registration.decode(plain({**MANY, "odd": odd}), compressed=False)
    config = body.topic_config_serialize_wrapper.topic_config_table["odd"]
    assert config == TopicConfig(topic_name="odd", order=True)


def test_a_topic_of_a_long_registration_may_be_longer_than_most() -> None:
    long = {"topicName": "long", "attributes": {"+a": "x" * 10_000}}
    body = registration.decode(plain({**MANY, "long": long}), compressed=False)
    config = body.topic_config_serialize_wrapper.topic_config_table["long"]
    assert len(config.attributes["+a"]) == 10_000


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (plain(MANY)[:-200], "registration of"),
        (b"[" * 100_000, "{ is expected at character 0"),
        (b"{1:2" + b" " * 100_000, "a name is expected"),
        (b'{"a" :' + b" " * 100_000, ": is expected at character 4"),
        (b'{"a":' + b"[" * 100_000, "registration of"),
        (b'{"a":"' + b"x" * 100_000 + b'"}', "registration of"),
        (b"\xff" * 100_000, "registration of"),
        (plain({**MANY, "bad": {"topicName": ["no"]}}), "not a text"),
    ],
)
def test_a_long_registration_that_is_damaged_is_the_peers_fault(body: bytes, reason: str) -> None:
    with pytest.raises(FieldError, match=reason):
        registration.decode(body, compressed=False)


def test_more_topics_than_a_broker_can_have_are_refused() -> None:
    data = part(b"{}") + struct.pack(">i", registration.TOPICS_MAX + 1)
    with pytest.raises(FieldError, match="more than 100000 topics"):
        registration.decode(zlib.compress(data), compressed=True)


def test_a_registration_unfolds_to_no_more_than_a_frame_holds() -> None:
    with pytest.raises(FieldError, match="beyond the limit of 16777216 bytes"):
        registration.decompress(zlib.compress(bytes((16 << 20) + 1)))
