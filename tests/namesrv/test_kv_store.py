from pathlib import Path

import pytest

from roquet.model.errors import ConfigError, FieldError
from roquet.namesrv.kv_store import SIZE_MAX, KVStore
from roquet.store.filesystem.files import RealFiles
from roquet.store.filesystem.memory_files import MemoryFiles


def test_values_outlive_the_process(tmp_path: Path) -> None:
    values = KVStore(tmp_path / "new", RealFiles())
    values.put("n", "k", "v")
    values.put("n", "gone", "w")
    values.delete("n", "gone")
    work = values.saving()
    assert work is not None
    work()
    assert values.saving() is None, "the disk has it"
    again = KVStore(tmp_path / "new", RealFiles())
    assert again.all("n") == {"k": "v"}


def test_genuine_files_are_read(tmp_path: Path) -> None:
    text = '{"configTable":{"ORDER_TOPIC_CONFIG":{"orders":"a:4;b:2"}}}'
    (tmp_path / "kvConfig.json").write_text(text)
    assert KVStore(tmp_path, RealFiles()).get("ORDER_TOPIC_CONFIG", "orders") == "a:4;b:2"


def test_a_damaged_file_is_named_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "kvConfig.json").write_text("{")
    with pytest.raises(ConfigError, match=r"kvConfig\.json is not a table of values"):
        KVStore(tmp_path, RealFiles())
    assert (tmp_path / "kvConfig.json").read_text() == "{"


def test_a_value_never_stored_is_missing() -> None:
    values = KVStore(Path("/"), MemoryFiles())
    assert values.get("n", "k") is None
    assert values.all("n") == {}
    values.delete("n", "k")
    assert values.all("n") == {}


def test_values_have_room_for_16_mib_together() -> None:
    values = KVStore(Path("/"), MemoryFiles())
    values.put("n", "a", "x" * (SIZE_MAX // 2))
    with pytest.raises(FieldError, match="delete some first"):
        values.put("n", "b", "x" * (SIZE_MAX // 2))
    values.put("n", "a", "x" * (SIZE_MAX // 4))
    values.put("n", "b", "x" * (SIZE_MAX // 2))
    values.delete("n", "b")
    values.put("n", "c", "x" * (SIZE_MAX // 2))
    assert values.all("n").keys() == {"a", "c"}


def test_a_save_that_fails_is_tried_again_with_the_next_one() -> None:
    class FullDisk(MemoryFiles):
        is_full = True

        def replace(self, path: Path, data: bytes, **options: bool) -> None:
            if self.is_full:
                raise OSError("no space left")
            super().replace(path, data, **options)

    files = FullDisk()
    values = KVStore(Path("/"), files)
    values.put("n", "k", "v")
    work = values.saving()
    assert work is not None
    with pytest.raises(OSError, match="no space"):
        work()
    files.is_full = False
    work = values.saving()
    assert work is not None
    work()
    assert KVStore(Path("/"), files).get("n", "k") == "v"
