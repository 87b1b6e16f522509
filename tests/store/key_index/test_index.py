from pathlib import Path
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.store.conftest import NOW, DataDir, draft, index_all

from roquet.model.errors import StoreError
from roquet.store.config import StoreConfig
from roquet.store.filesystem.mapped_file import MapPool
from roquet.store.filesystem.memory_files import MemoryFiles
from roquet.store.key_index.index import IndexFile, KeyIndex, link_entries
from roquet.store.layout import INDEX_ENTRY, INDEX_HEAD
from roquet.store.store import Store

pytestmark = pytest.mark.usefixtures("form")


def make_index(files: MemoryFiles | None = None, slots: int = 5, entries: int = 10) -> KeyIndex:
    config = StoreConfig(index_slots=slots, index_entries=entries, index_step=100)
    index = KeyIndex(MapPool(files or MemoryFiles(), 9), Path("/index"), config)
    index.open()
    return index


def put(index: KeyIndex | IndexFile, found: list[tuple[int, int, int]]) -> int:
    """Adds (hash, position, store time) of keys."""
    return index.put_many(*([key[column] for key in found] for column in range(3)))


@given(st.lists(st.integers(0, 12), max_size=40))
def test_entries_are_found_newest_first_in_all_files(hashes: list[int]) -> None:
    files = MemoryFiles()
    index = make_index(files)
    assert put(index, [(h, 100 + n, NOW + n) for n, h in enumerate(hashes)]) == len(hashes)
    for seen in (index, make_index(files)):
        for key_hash in range(13):
            expected = [100 + n for n, h in enumerate(hashes) if h == key_hash]
            assert list(seen.find(key_hash, 0)) == expected[::-1]
        assert len(seen.files) == -(-len(hashes) // 9)


def test_the_head_says_what_the_file_covers() -> None:
    index = make_index()
    put(index, [(7, 100, NOW), (8, 200, NOW + 1500), (12, 200, NOW + 2500)])
    head = INDEX_HEAD.unpack_from(index.files[0].file.view())
    assert head == (NOW, NOW + 2500, 100, 200, 2, 4)
    assert index.files[0].entry(3) == (12, 200, 2, 1)
    assert (index.end_position, index.end_ms) == (200, NOW + 2500)


def test_files_are_named_by_time_and_never_alike() -> None:
    index = make_index()
    put(index, [(1, n, NOW) for n in range(25)])
    names = [file.name for file in index.files]
    assert names == sorted(set(names))
    assert all(len(str(name)) == 17 for name in names)


def test_a_full_file_takes_nothing_more() -> None:
    index = make_index()
    put(index, [(1, n, NOW) for n in range(9)])
    (file,) = index.files
    assert file.is_full
    assert put(file, [(1, 9, NOW)]) == 0
    assert list(index.find(1, 0)) == list(range(8, -1, -1))


def test_times_narrow_the_search() -> None:
    index = make_index()
    put(index, [(1, n, NOW + n * 1000) for n in range(30)])
    assert list(index.find(1, NOW + 28_000)) == [29, 28]
    assert list(index.find(1, NOW + 10**9)) == []


def test_a_clock_that_went_back_spoils_nothing() -> None:
    index = make_index()
    put(index, [(1, 0, NOW), (1, 1, NOW - 99_000)])
    assert list(index.find(1, 0)) == [1, 0]


@given(st.lists(st.integers(0, 12), min_size=1, max_size=9), st.data())
def test_a_rewound_file_is_as_it_was(hashes: list[int], data: st.DataObject) -> None:
    index = make_index()
    kept = data.draw(st.integers(0, len(hashes)))
    put(index, [(h, n, NOW) for n, h in enumerate(hashes[:kept])])
    before = bytes(index.files[0].file.view()) if kept else None
    put(index, [(h, kept + n, NOW) for n, h in enumerate(hashes[kept:])])
    file = index.files[0]
    assert file.rewind(1 + kept)
    for key_hash in range(13):
        expected = [n for n, h in enumerate(hashes[:kept]) if h == key_hash]
        assert [p for p, _ in file.find(key_hash)] == expected[::-1]
    if before:
        assert bytes(file.file.view())[40:60] == before[40:60]


def test_slots_that_lost_their_entries_are_linked_again() -> None:
    index = make_index()
    put(index, [(h, h, NOW) for h in range(9)])
    file = index.files[0]
    entries_at = 40 + 5 * 4
    file.file.view()[entries_at + 6 * 20 : entries_at + 10 * 20] = bytes(80)
    assert not file.rewind(5)
    file.rebuild_slots()
    assert [[p for p, _ in file.find(h)] for h in range(9)] == [[0], [1], [2], [3]] + [[]] * 5
    assert file.slots_used == 4


def test_a_cut_links_slots_again_that_lost_their_entries() -> None:
    index = make_index()
    put(index, [(h, h, NOW) for h in range(9)])
    file = index.files[0]
    entries_at = 40 + 5 * 4
    file.file.view()[entries_at + 6 * 20 : entries_at + 10 * 20] = bytes(80)
    index.cut(4)
    assert [[p for p, _ in file.find(h)] for h in range(9)] == [[0], [1], [2], [3]] + [[]] * 5


def test_entries_that_were_counted_and_never_written_are_taken_back() -> None:
    files = MemoryFiles()
    index = make_index(files)
    put(index, [(1, 1, NOW), (6, 2, NOW)])
    file = index.files[0]
    file.next = 7
    file.save()
    index = make_index(files)
    assert index.files[0].rewind(3)
    assert list(index.find(6, 0)) == [2]


def test_a_chain_that_leads_in_a_circle_ends() -> None:
    index = make_index()
    put(index, [(1, 1, NOW), (6, 2, NOW)])
    view = index.files[0].file.view()
    entry_at = 40 + 5 * 4 + 20
    view[entry_at + 16 : entry_at + 20] = (2).to_bytes(4, "big")
    assert list(index.find(6, 0)) == [2]


def test_a_full_disk_ends_it_early_and_it_can_go_on(caplog: pytest.LogCaptureFixture) -> None:
    files = MemoryFiles(capacity=150)
    index = make_index(files)
    entries = [(1, n, NOW) for n in range(30)]
    done = put(index, entries)
    assert done < 30
    for _ in range(3):
        assert put(index, entries[done:]) == put(index, []) == 0
    assert caplog.text.count("waits for room") == 1, "until there was room"
    files.capacity = 10_000
    put(index, entries[done:])
    assert list(index.find(1, 0)) == list(range(29, -1, -1))


def test_old_files_go_but_not_the_newest() -> None:
    files = MemoryFiles()
    index = make_index(files)
    put(index, [(1, n, NOW) for n in range(27)])
    assert len(index.drop_before(9)) == 1
    assert len(index.drop_before(10_000)) == 1
    assert list(make_index(files).find(1, 0)) == list(range(26, 17, -1))


def test_files_of_another_shape_and_foreign_ones(caplog: pytest.LogCaptureFixture) -> None:
    files = MemoryFiles()
    files.replace(Path("/index/notes"), b"")
    files.replace(Path("/index/20231114221320000"), b"")
    assert make_index(files).files == []
    assert "notes does not belong there" in caplog.text
    assert list(files.list(Path("/index"))) == ["notes"]
    files.replace(Path("/index/20231114221320000"), bytes(99))
    assert make_index(files).files == []
    assert "99 bytes instead of 260: the index is rebuilt" in caplog.text
    assert list(files.list(Path("/index"))) == ["notes"]
    files.replace(Path("/index/20231114221320000/mine"), b"mine")
    with pytest.raises(StoreError, match="20231114221320000 cannot be used: Is a directory"):
        make_index(files)


@pytest.mark.parametrize("number", [0, 1, -1])
@pytest.mark.parametrize("head", [b"\xff" * 40, bytes(range(40)), bytes(40)])
def test_an_index_file_with_a_damaged_head_is_made_again(
    store_dir: DataDir, store: Store, number: int, head: bytes
) -> None:
    for n in range(250):
        store.append(draft(properties={"KEYS": f"k{n}"}), NOW + n)
        store.dispatch()
    store.close(NOW)
    names = sorted(p.name for p in store_dir.files.contents if p.parent.name == "index")
    assert len(names) == 3
    store_dir.content(f"index/{names[number]}")[:40] = head
    store = store_dir.open()
    index_all(store)
    assert all(len(store.query("T", f"k{n}").records) == 1 for n in range(250))


def encode_slots(numbers: list[int]) -> bytearray:
    return bytearray(b"".join(pack(">i", number) for number in numbers))


def test_entries_are_linked_to_those_that_the_slots_led_to() -> None:
    slots = encode_slots([0, 4, 9, -1])
    rows = [(1, 100, NOW), (2, 200, NOW + 999), (5, 300, NOW + 1000), (3, 2**62, NOW - 1)]
    hashes, positions, times = zip(*rows, strict=True)
    entries, unused = link_entries(memoryview(slots), hashes, positions, times, NOW, 5)
    assert list(INDEX_ENTRY.iter_unpack(entries)) == [
        (1, 100, 0, 4),
        (2, 200, 0, 0),  # 9 is a number that no entry has yet
        (5, 300, 1, 5),
        (3, 2**62, 0, 0),
    ]
    assert slots == encode_slots([0, 7, 6, 8])
    assert unused == 2


def test_seconds_are_bounded_by_what_an_entry_holds() -> None:
    slots = encode_slots([0])
    for begin_ms, stored_ms, seconds in (
        (0, 2**63 - 1, 2**31 - 1),
        (2**63 - 1, -(2**63), 0),
        (-(2**63), 2**63 - 1, 2**31 - 1),
        (NOW, NOW + 1000 * 2**31, 2**31 - 1),
        (NOW, NOW + 1000 * 2**31 - 1, 2**31 - 1),
        (NOW, NOW + 1000 * 2**31 - 1001, 2**31 - 2),
    ):
        entries, _ = link_entries(memoryview(slots), [1], [2], [stored_ms], begin_ms, 1)
        assert INDEX_ENTRY.unpack(entries)[2] == seconds


def test_entries_need_a_slot_and_columns_of_one_length() -> None:
    with pytest.raises(ZeroDivisionError):
        link_entries(memoryview(bytearray(3)), [1], [2], [NOW], NOW, 1)
    for hashes, positions, times in (([1, 2], [2], [NOW]), ([1], [], [NOW]), ([1], [2], [])):
        with pytest.raises(ValueError, match="zip"):
            link_entries(memoryview(bytearray(8)), hashes, positions, times, NOW, 1)
