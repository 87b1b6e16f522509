import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.store.conftest import NOW, DataDir, draft

from roquet.model.errors import StoreError
from roquet.store.config import StoreConfig
from roquet.store.dump import dump_file, file_kind
from roquet.store.store import Store


@pytest.fixture
def closed(store_dir: DataDir, store: Store) -> DataDir:
    for n in range(60):
        store.append(draft(b"body %d" % n * 9 if n > 1 else b"\xff"), NOW + n)
    store.close(NOW)
    return store_dir


def dumped(store_dir: DataDir, name: str) -> list[dict[str, Any]]:
    values = list(dump_file(store_dir.path(name), files=store_dir.files, config=store_dir.config))
    msgspec.json.encode(values)
    return values


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("commitlog/00000000000000000000", "log"),
        ("consumequeue/T/0/00000000000000000000", "queue"),
        ("index/20231114221320000", "index"),
        ("checkpoint", "checkpoint"), ("abort", "abort"), ("lock", "lock"),
        ("config/topics.json", "table"), ("config/topics.json.bak", "table"),
        ("timerwheel", None), ("notes.txt", None),
    ],
)  # fmt: skip
def test_a_file_is_recognised_by_its_directory_and_name(path: str, kind: str | None) -> None:
    assert file_kind(Path("/data") / path) == kind


def test_a_log_is_records_and_what_lies_between(closed: DataDir) -> None:
    values = dumped(closed, f"commitlog/{0:020d}")
    assert values[0]["body"] == "ff"
    assert values[0]["body_is_hex"]
    assert values[2]["body"] == "body 2" * 9
    assert values[1]["properties"] == {"TAGS": "red", "UNIQ_KEY": "U1"}
    assert values[1]["store_host"] == "0.0.0.0:0"
    assert values[-1]["kind"] == "blank"
    assert dumped(closed, f"commitlog/{8192:020d}")[-1]["kind"] == "free"


def test_damage_and_torn_ends_are_shown(closed: DataDir) -> None:
    first = dumped(closed, f"commitlog/{0:020d}")
    closed.bytes_at(first[3]["position"], 50)[:] = bytes(50)
    values = dumped(closed, f"commitlog/{0:020d}")
    assert values[3] == {
        "kind": "damage", "position": first[3]["position"], "size": first[3]["size"],
    }  # fmt: skip
    last = dumped(closed, f"commitlog/{8192:020d}")[-2]
    closed.bytes_at(last["position"] + 100, 40)[:] = b"?" * 40
    assert dumped(closed, f"commitlog/{8192:020d}")[-1]["kind"] == "torn"


def test_a_queue_is_its_entries(closed: DataDir) -> None:
    values = dumped(closed, f"consumequeue/T/0/{1000:020d}")
    assert [value["offset"] for value in values] == list(range(50, 60))
    assert values[0]["tag_code"] == 112785


def test_an_index_is_its_head_and_entries(closed: DataDir) -> None:
    (path,) = [p for p in closed.files.contents if p.parent.name == "index"]
    head, *entries = dumped(closed, f"index/{path.name}")
    assert (head["next"], len(entries)) == (61, 60)
    assert entries[1]["before"] == 1
    with pytest.raises(StoreError, match="cannot be told apart"):
        list(dump_file(path, files=closed.files, config=StoreConfig()))


def test_marks_tables_and_the_checkpoint(closed: DataDir) -> None:
    closed.files.replace(closed.path("config/offsets.json"), b'{"offsetTable":{"T@G":{0:7}}}')
    closed.files.replace(closed.path("abort"), b"123")
    assert dumped(closed, "config/offsets.json")[0]["content"] == {"offsetTable": {"T@G": {"0": 7}}}
    assert dumped(closed, "abort") == [{"kind": "abort", "text": "123"}]
    assert dumped(closed, "checkpoint")[0]["note"]["made_ms"] == NOW


def test_damage_that_cannot_be_walked_is_named(closed: DataDir) -> None:
    closed.files.replace(closed.path("config/x.json"), b"{")
    closed.files.replace(closed.path("notes"), b"")
    for name, reason in [("config/x.json", "holds no JSON"), ("notes", "no store file"),
                         ("none", "is not a file"), ("config", "is not a file")]:  # fmt: skip
        with pytest.raises(StoreError, match=reason):
            dumped(closed, name)


def test_a_record_that_is_no_text_is_shown_as_odd(store_dir: DataDir, store: Store) -> None:
    place = store.append(draft(), NOW)
    store.close(NOW)
    data = bytes(store_dir.bytes_at(0, place.size))
    store_dir.bytes_at(data.index(b"T", 91), 1)[:] = b"\xff"
    assert dumped(store_dir, f"commitlog/{0:020d}")[0]["kind"] == "odd"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes on this system")
@pytest.mark.parametrize("name", ["checkpoint", "lock", "topics.json"])
def test_a_pipe_is_named_and_not_waited_for(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    with pytest.raises(StoreError, match=f"{name} cannot be used: no file, but a pipe"):
        list(dump_file(tmp_path / name))
