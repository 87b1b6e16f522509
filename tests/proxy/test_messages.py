"""Messages of both protocols, each made from the other."""

from hypothesis import given
from hypothesis import strategies as st

from roquet.model.message import StoredMessage
from roquet.proxy.caller import Caller
from roquet.proxy.messages import prepare, to_properties, to_protobuf
from roquet.proxy.protos import definition_pb2 as pb
from roquet.wire.records.property_text import decode_properties

CALLER = Caller("c", "JAVA", "5.2.0", "10.0.0.7:4711", None)

WORDS = st.text(st.characters(categories=("L", "N")), min_size=1, max_size=20)


@given(
    body=st.binary(min_size=1),
    tag=WORDS,
    keys=st.lists(WORDS, max_size=3),
    group=st.none() | WORDS.filter(lambda text: len(text.encode()) < 64),
    user=st.dictionaries(WORDS.map("u{}".format), WORDS, max_size=3),
    deliver_ms=st.none() | st.integers(0, 86_400_000),
)
def test_what_is_sent_is_what_is_received(
    body: bytes,
    tag: str,
    keys: list[str],
    group: str | None,
    user: dict[str, str],
    deliver_ms: int | None,
) -> None:
    system = pb.SystemProperties(message_id="ID", tag=tag, keys=keys, message_group=group)
    if deliver_ms is not None:
        system.delivery_timestamp.FromMilliseconds(deliver_ms)
    sent = pb.Message(body=body, user_properties=user, system_properties=system)
    properties = to_properties(sent, "t", CALLER, 1_000)
    outgoing = prepare(sent, "t", properties, 1_000)
    stored = StoredMessage(
        topic="t",
        body=outgoing.body,
        properties=decode_properties(outgoing.properties),
        queue_id=3,
        queue_offset=7,
        position=0,
        size=0,
        born_ms=outgoing.born_ms,
    )
    got = to_protobuf(stored, stored.body, outgoing.sys_flag, "t")
    assert got.body == body
    assert dict(got.user_properties) == user
    assert (got.system_properties.message_id, got.system_properties.tag) == ("ID", tag)
    assert list(got.system_properties.keys) == keys
    assert got.system_properties.message_group == (group or "")
    assert got.system_properties.HasField("delivery_timestamp") == (deliver_ms is not None)
    if deliver_ms is not None:
        assert got.system_properties.delivery_timestamp.ToMilliseconds() == deliver_ms


def test_numbers_that_senders_have_written_wrong_are_left_out() -> None:
    wrong = {"TIMER_DELIVER_MS": "9" * 30, "_SYS_MSG_PRIORITY_": "high", "UNIQ_KEY": "ID"}
    stored = StoredMessage(
        topic="t", body=b"x", properties=wrong, queue_id=0, queue_offset=0, position=0, size=0
    )
    system = to_protobuf(stored, b"x", 0, "t").system_properties
    assert not system.HasField("delivery_timestamp")
    assert not system.HasField("priority")


@given(
    properties=st.dictionaries(
        st.sampled_from(["UNIQ_KEY", "KEYS", "TAGS", "TIMER_DELIVER_MS", "_SYS_MSG_PRIORITY_"])
        | st.text(st.characters(categories=("L", "Cs"))),
        st.text(st.characters(categories=("L", "Cs"))) | st.integers(0).map(str),
    ),
    millis=st.integers(-(2**63), 2**63 - 1),
    times=st.integers(-(2**31), 2**31 - 1),
)
def test_whatever_other_producers_have_written_is_received(
    properties: dict[str, str], millis: int, times: int
) -> None:
    stored = StoredMessage(
        topic="t",
        body=b"x",
        properties=properties,
        queue_id=0,
        queue_offset=0,
        position=0,
        size=0,
        born_ms=millis,
        stored_ms=millis,
        reconsume_times=times,
    )
    assert to_protobuf(stored, b"x", 0, "t").body == b"x"
