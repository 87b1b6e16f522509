"""A replica's store equals its master's, to the byte, whatever the cuts of the stream."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.store.conftest import parts

from roquet.store.store import Store
from roquet.wire.records.record import encode_properties

if TYPE_CHECKING:
    from tests.store.conftest import MakeDraft, StoreDirectory
    from tests.store.replication.conftest import Copy

NOW = 1_700_000_000_000

KEYS = st.sampled_from(["", "U1", "U2", "ключ", "a b"])
MESSAGES = st.fixed_dictionaries(
    {
        "body": st.binary(max_size=300),
        "topic": st.sampled_from(["T", "U", "SCHEDULE_TOPIC_XXXX", "t" * 130]),
        "queue_id": st.integers(0, 2),
        "sys_flag": st.sampled_from([0, 0, 0, 4, 8, 12, 16, 32]),
        "tag": st.sampled_from(["red", "", "été", "\U0001f600"]),
        "key": KEYS,
        "long": st.sampled_from([0, 0, 600]),
    }
)
STEPS = st.lists(MESSAGES | st.lists(st.binary(max_size=60), min_size=1, max_size=9), max_size=60)


def store_message(store: Store, draft: "MakeDraft", given_: dict[str, Any], now_ms: int) -> None:
    properties = {"TAGS": given_["tag"], "UNIQ_KEY": given_["key"], "KEYS": "k1 k2"}
    if given_["topic"].startswith("SCHEDULE"):
        properties["DELAY"] = "3"
    if given_["long"]:
        properties["long"] = "x" * given_["long"]
    sys_flag = given_["sys_flag"]
    made = draft(
        given_["body"], given_["topic"], given_["queue_id"], properties=properties,
        sys_flag=sys_flag, tag_code=0,
        born_host=bytes(20 if sys_flag & 16 else 8), store_host=bytes(20 if sys_flag & 32 else 8),
    )  # fmt: skip
    found = EntryCode(made.topic.encode(), made.properties, now_ms)
    store.append(
        type(made)(**{f: getattr(made, f) for f in made.__struct_fields__} | {"tag_code": found}),
        now_ms,
    )


def EntryCode(topic: bytes, properties: bytes, now_ms: int) -> int:
    from roquet.store.config import DELAY_LEVELS_MS
    from roquet.store.consume_queue.rebuild import EntryTagCodes

    return EntryTagCodes(DELAY_LEVELS_MS)(topic, properties, now_ms)


def contents(directory: "StoreDirectory") -> dict[Path, bytes]:
    """Files of log, queues and index, without the zeros at their ends."""
    return {
        path: data.rstrip(b"\0")
        for path, data in directory.snapshot().items()
        if path.parts[2] in ("commitlog", "consumequeue", "index") and data.strip(b"\0")
    }


@given(STEPS, st.lists(st.integers(1, 5000), min_size=1, max_size=8), st.integers(1, 40))
@settings(max_examples=150, deadline=None)
def test_a_copy_equals_its_master_to_the_byte(
    new_store_dir: type["StoreDirectory"], draft: "MakeDraft", copy: "Copy",
    steps: list[Any], sizes: list[int], count_max: int,
) -> None:  # fmt: skip
    one, two = new_store_dir(), new_store_dir()
    master, replica = one.open(), two.open()
    for number, step in enumerate(steps):
        if isinstance(step, dict):
            store_message(master, draft, step, NOW + number * 700)
        else:
            text = encode_properties({"UNIQ_KEY": f"B{number}"})
            rows = [(0, body, text, 0) for body in step]
            master.append_batch(draft(topic="B"), parts(rows), NOW + number * 700)
        if number % 7 == 0:
            copy(master, replica, sizes)
    copy(master, replica, sizes)
    while master.dispatch():
        pass
    assert (replica.raw.dispatched, replica.raw.end) == (master.raw.end, master.raw.end)
    assert contents(two) == contents(one)
    master.close(NOW)
    replica.close(NOW)
    assert contents(two) == contents(one)
