"""The first message of a key is kept, and doubles go as long as their batch is remembered."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from roquet.spark.cluster.deduplication import Deduplicator, drop_duplicates

key = st.builds(
    "{}/{}/{}/{}".format,
    st.sampled_from(["q", "other/with/slashes"]),
    st.integers(0, 3),
    st.integers(0, 2),
    st.integers(0, 40),
)


@given(st.lists(st.lists(st.one_of(st.none(), key), max_size=20), max_size=5))
def test_each_key_is_kept_once_and_what_has_none_always(batches: list[list[str | None]]) -> None:
    doubles, met = Deduplicator(), set[str]()
    for batch in batches:
        kept = doubles.firsts(pa.array(batch, pa.string())).tolist()
        for name, is_kept in zip(batch, kept, strict=True):
            assert is_kept == (name is None or name not in met)
            if name is not None:
                met.add(name)
    assert doubles.dropped == sum(name is not None for batch in batches for name in batch) - len(
        met
    )


def test_keys_of_another_form_are_kept() -> None:
    odd = ["", "a/b/c/d", "q/1/2", "q/1/2/-3", f"q/1/2/{10**18}", "q/1/2/"]
    for _ in range(2):
        assert Deduplicator().firsts(pa.array(odd * 2)).all()


def test_what_a_replay_writes_is_a_key_wherever_its_queue_is() -> None:
    doubles = Deduplicator()
    keys = [f"orders/broker-a/0/{offset}" for offset in (7, 2**31, 7, 10**17, 2**31)]
    assert doubles.firsts(pa.array(keys)).tolist() == [True, True, False, True, False]
    assert doubles.firsts(pa.array([keys[3], "orders/broker-b/0/7"])).tolist() == [False, True]
    assert doubles._bytes < 2**20, "far offsets take no more room than near ones"


def test_a_batch_that_was_forgotten_gives_its_messages_again() -> None:
    doubles = Deduplicator(batches_max=2)
    for batch in range(4):
        assert doubles.firsts(pa.array([f"q/{batch}/0/7"])).tolist() == [True]
    assert doubles.firsts(pa.array(["q/3/0/7", "q/0/0/7"])).tolist() == [False, True]


def test_memory_is_bounded_by_bits() -> None:
    doubles = Deduplicator(bytes_max=10_000)
    for batch in range(50):
        doubles.firsts(pa.array([f"q/{batch}/0/{row}" for row in (0, 20_000)]))
        assert doubles._bytes <= 10_000
    assert doubles.firsts(pa.array(["q/49/0/20000"])).tolist() == [False]


def test_batches_lose_their_doubles() -> None:
    def batch(*keys: str | None) -> pa.RecordBatch:
        properties = [[("ROQUET_ROW", name), ("a", "b")] if name else [] for name in keys]
        kind = pa.map_(pa.string(), pa.string())
        return pa.RecordBatch.from_pydict(
            {"at": range(len(keys)), "properties": pa.array(properties, kind)}
        )

    batches = [batch("q/0/0/0", "q/0/0/1", "q/0/0/0"), batch("q/0/0/1", None, "q/0/0/2")]
    found = list(drop_duplicates(batches, Deduplicator()))
    assert [one["at"].to_pylist() for one in found] == [[0, 1], [1, 2]]
