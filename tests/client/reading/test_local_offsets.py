"""Committed offsets of a broadcasting member, in a file."""

from pathlib import Path
from typing import Any

import pytest

from roquet.client.config import ConsumerConfig
from roquet.client.connection.session import Session
from roquet.client.reading.local_offsets import LocalOffsets, offsets_folder, state_folder
from roquet.model.errors import ConfigError, UsageError
from roquet.model.queue import MessageQueue

pytestmark = pytest.mark.virtual_time(False)

QUEUE = MessageQueue("t", "a", 0)


def opened(folder: Path, **settings: Any) -> LocalOffsets:
    config = ConsumerConfig(**settings)
    offsets = LocalOffsets(Session("127.0.0.1:1", config), config, "g", folder)
    offsets.open()
    return offsets


async def test_progress_outlives_its_member(tmp_path: Path) -> None:
    first = opened(tmp_path)
    assert await first.committed(QUEUE) is None
    await first.commit(QUEUE, 5)
    await first.commit_nowait(QUEUE, 7)
    first.flush()
    first.close()
    second = opened(tmp_path)
    assert await second.committed(QUEUE) == 7
    second.close()


async def test_the_file_is_javas(tmp_path: Path) -> None:
    offsets = opened(tmp_path)
    await offsets.commit(QUEUE, 5)
    offsets.close()
    text = (tmp_path / "DEFAULT" / "g" / "offsets.json").read_text()
    assert "".join(text.split()) == '{"offsetTable":{{"brokerName":"a","queueId":0,"topic":"t"}:5}}'


async def test_a_damaged_file_is_passed_over_for_the_one_before(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = opened(tmp_path)
    await first.commit(QUEUE, 5)
    await first.commit(QUEUE, 6)
    first.close()
    path = tmp_path / "DEFAULT" / "g" / "offsets.json"
    path.write_text("{torn")
    second = opened(tmp_path)
    assert await second.committed(QUEUE) == 5
    assert "cannot be read" in caplog.text
    second.close()


def test_two_members_on_one_machine_need_names(tmp_path: Path) -> None:
    first = opened(tmp_path)
    with pytest.raises(UsageError, match="an `instance` of its own"):
        opened(tmp_path)
    second = opened(tmp_path, instance="second")
    for one in (first, second, first):
        one.close()


def test_the_default_folder_follows_the_platform(tmp_path: Path) -> None:
    home = {"HOME": "/home/me"}
    assert state_folder("linux", home) == Path("/home/me/.local/state/roquet")
    assert state_folder("linux", {**home, "XDG_STATE_HOME": "/s"}) == Path("/s/roquet")
    assert state_folder("darwin", home) == Path("/home/me/Library/Application Support/roquet")
    assert state_folder("win32", {"LOCALAPPDATA": "/l"}) == Path("/l/roquet")
    with pytest.raises(ConfigError, match="offsets_dir"):
        state_folder("linux", {})
    assert offsets_folder(ConsumerConfig(offsets_dir=tmp_path), {}) == tmp_path
    assert offsets_folder(ConsumerConfig(), home).name == "offsets"


def test_an_unusable_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "DEFAULT").write_text("a file")
    with pytest.raises(UsageError, match="cannot be kept in"):
        opened(tmp_path)


async def test_a_failed_write_loses_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    offsets = opened(tmp_path)
    folder = tmp_path / "DEFAULT" / "g"
    (folder / "offsets.json").mkdir()
    await offsets.commit(QUEUE, 5)
    assert "not saved yet" in caplog.text
    (folder / "offsets.json").rmdir()
    offsets.flush()
    offsets.close()
    again = opened(tmp_path)
    assert await again.committed(QUEUE) == 5
    again.close()


async def test_the_topic_id_is_stored_with_its_offset(tmp_path: Path) -> None:
    first = opened(tmp_path)
    first.topic_ids[QUEUE] = "1-1"
    await first.commit(QUEUE, 5)
    first.close()
    second = opened(tmp_path)
    assert await second.start_offset(QUEUE) == 5
    assert second.topic_ids == {QUEUE: "1-1"}
    second.topic_ids.clear()
    await second.commit(QUEUE, 5)
    second.close()
    text = (tmp_path / "DEFAULT" / "g" / "offsets.json").read_text()
    assert "topicIds" not in text, "of a topic without an id the file is as Java's"
