"""Deduplication: the first message of a key is kept, and duplicates go while it is remembered."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from roquet.spark.cluster.deduplication import Deduplicator

key = st.builds(
    "{}/{}/{}/{}".format,
    st.sampled_from(["q", "other/with/slashes"]),
    st.integers(0, 3),
    st.integers(0, 2),
    st.integers(0, 40),
)


@given(st.lists(st.lists(st.one_of(st.none(), key), max_size=20), max_size=5))
def test_each_key_is_kept_once_and_rows_without_a_key_always(
    batches: list[list[str | None]],
) -> None:
    deduplicator, met = Deduplicator(), set[str]()
    for batch in batches:
        kept = deduplicator.first_occurrences(pa.array(batch, pa.string())).tolist()
        for name, is_kept in zip(batch, kept, strict=True):
            assert is_kept == (name is None or name not in met)
            if name is not None:
                met.add(name)
    assert deduplicator.dropped == sum(
        name is not None for batch in batches for name in batch
    ) - len(met)


def test_keys_of_another_form_are_kept() -> None:
    odd = ["", "a/b/c/d", "q/1/2", "q/1/2/-3", f"q/1/2/{10**18}", "q/1/2/"]
    for _ in range(2):
        assert Deduplicator().first_occurrences(pa.array(odd * 2)).all()


def test_the_property_of_a_replay_is_a_key_in_any_queue() -> None:
    deduplicator = Deduplicator()
    keys = [f"orders/broker-a/0/{offset}" for offset in (7, 2**31, 7, 10**17, 2**31)]
    assert deduplicator.first_occurrences(pa.array(keys)).tolist() == [
        True,
        True,
        False,
        True,
        False,
    ]
    assert deduplicator.first_occurrences(pa.array([keys[3], "orders/broker-b/0/7"])).tolist() == [
        False,
        True,
    ]
    assert deduplicator.bytes_used < 2**20, "far offsets take no more room than near ones"


def test_a_batch_that_was_forgotten_gives_its_messages_again() -> None:
    deduplicator = Deduplicator(batches_max=2)
    for batch in range(4):
        assert deduplicator.first_occurrences(pa.array([f"q/{batch}/0/7"])).tolist() == [True]
    assert deduplicator.first_occurrences(pa.array(["q/3/0/7", "q/0/0/7"])).tolist() == [
        False,
        True,
    ]


def test_memory_is_bounded_by_bits() -> None:
    deduplicator = Deduplicator(bytes_max=10_000)
    for batch in range(50):
        deduplicator.first_occurrences(pa.array([f"q/{batch}/0/{row}" for row in (0, 20_000)]))
        assert deduplicator.bytes_used <= 10_000
    assert deduplicator.first_occurrences(pa.array(["q/49/0/20000"])).tolist() == [False]
