from pathlib import Path

import pytest

from roquet.model.errors import ConfigError
from roquet.namesrv.values import Values
from roquet.store.files import RealFiles
from roquet.store.memory import MemoryFiles


def test_values_outlive_the_process(tmp_path: Path) -> None:
    values = Values(tmp_path / "new", RealFiles())
    values.put("n", "k", "v")
    values.put("n", "gone", "w")
    values.delete("n", "gone")
    again = Values(tmp_path / "new", RealFiles())
    assert again.all("n") == {"k": "v"}


def test_genuine_files_are_read(tmp_path: Path) -> None:
    text = '{"configTable":{"ORDER_TOPIC_CONFIG":{"orders":"a:4;b:2"}}}'
    (tmp_path / "kvConfig.json").write_text(text)
    assert Values(tmp_path, RealFiles()).get("ORDER_TOPIC_CONFIG", "orders") == "a:4;b:2"


def test_a_damaged_file_is_named_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "kvConfig.json").write_text("{")
    with pytest.raises(ConfigError, match=r"kvConfig\.json is not a table of values"):
        Values(tmp_path, RealFiles())
    assert (tmp_path / "kvConfig.json").read_text() == "{"


def test_what_was_never_kept_is_not_there() -> None:
    values = Values(Path("/"), MemoryFiles())
    assert values.get("n", "k") is None
    assert values.all("n") == {}
    values.delete("n", "k")
    assert values.all("n") == {}
