import json
from pathlib import Path

import pytest

from roquet.broker.tables.request_modes import RequestModes, RequestModeTable
from roquet.broker.tables.saved_table import TableFile
from roquet.model.errors import StoreError
from roquet.store.filesystem.files import RealFiles
from roquet.wire.calls.bodies import RequestMode

POPS = RequestMode(topic="t", consumer_group="g", mode="POP", pop_share_queue_num=2)


def file(directory: Path) -> TableFile:
    return TableFile(RealFiles(), directory / "messageRequestMode.json")


def test_a_mode_is_on_the_disk_as_apaches_broker_writes_it(tmp_path: Path) -> None:
    RequestModes(file(tmp_path)).put(POPS)
    assert json.loads((tmp_path / "messageRequestMode.json").read_text()) == {
        "messageRequestModeMap": {
            "t": {"g": {"consumerGroup": "g", "mode": "POP", "popShareQueueNum": 2, "topic": "t"}}
        }
    }
    again = RequestModes(file(tmp_path))
    assert again.get("t", "g") == POPS
    assert again.get("t", "other") is None
    assert again.get("other", "g") is None


def test_a_mode_that_the_disk_does_not_take_is_not_set(tmp_path: Path) -> None:
    modes = RequestModes(file(tmp_path / "missing" / "below"))
    (tmp_path / "missing").write_text("a file where a directory is wanted")
    with pytest.raises((StoreError, OSError)):
        modes.put(POPS)
    assert modes.get("t", "g") is None


def test_the_same_again_is_no_news(tmp_path: Path) -> None:
    modes = RequestModes(file(tmp_path))
    modes.put(POPS)
    path = tmp_path / "messageRequestMode.json"
    before = path.stat().st_ino
    modes.put(POPS)
    assert not modes.unsaved
    assert path.stat().st_ino == before


def test_in_memory_there_is_no_file() -> None:
    modes = RequestModes(None)
    modes.put(POPS)
    assert modes.get("t", "g") == POPS


def test_the_modes_of_a_master_replace_the_own_ones() -> None:
    modes = RequestModes(None)
    modes.put(RequestMode(topic="t", consumer_group="own", mode="POP"))
    table = RequestModeTable(message_request_mode_map={"t": {"a": RequestMode(mode="POP")}})
    modes.copy(table)
    assert modes.get("t", "own") is None
    assert modes.get("t", "a") == RequestMode(mode="POP")
    assert modes.unsaved
    modes.save()
    modes.copy(table)
    assert not modes.unsaved
