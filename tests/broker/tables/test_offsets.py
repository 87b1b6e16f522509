from pathlib import Path

import pytest

from roquet.broker.tables.offsets import Offsets
from roquet.broker.tables.table import TableFile
from roquet.store.files import RealFiles

GENUINE = Path(__file__).parents[2] / "vectors" / "config"


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_genuine_progress_is_taken_over(version: str, tmp_path: Path) -> None:
    path = tmp_path / "consumerOffset.json"
    path.write_bytes((GENUINE / version / "consumerOffset.json").read_bytes())
    offsets = Offsets(TableFile(RealFiles(), path))
    assert offsets.get("CG_main", "Bulk", 0) == 310
    assert offsets.get("CG_dead", "TopicC", 0) == 25
    assert offsets.get("CG_main", "TopicA", 9) is None


def test_a_group_has_no_progress_before_it_commits() -> None:
    assert Offsets(None).get("group", "topic", 0) is None


def test_progress_is_kept_for_each_queue_and_group() -> None:
    offsets = Offsets(None)
    offsets.commit("a", "topic", 0, 5)
    offsets.commit("b", "topic", 0, 6)
    offsets.commit("a", "topic", 1, 7)
    assert offsets.get("a", "topic", 0) == 5
    assert offsets.get("b", "topic", 0) == 6
    assert offsets.get("a", "topic", 1) == 7


def test_progress_may_go_back() -> None:
    offsets = Offsets(None)
    offsets.commit("a", "topic", 0, 5)
    offsets.commit("a", "topic", 0, 2)
    assert offsets.get("a", "topic", 0) == 2


def test_the_same_progress_again_is_no_news() -> None:
    offsets = Offsets(None)
    offsets.commit("a", "topic", 0, 5)
    offsets.unsaved = False
    offsets.commit("a", "topic", 0, 5)
    assert not offsets.unsaved


def test_a_deleted_topic_takes_its_progress_along() -> None:
    offsets = Offsets(None)
    offsets.commit("a", "topic", 0, 5)
    offsets.commit("a", "topic2", 0, 6)
    offsets.remove_topic("topic")
    assert offsets.get("a", "topic", 0) is None
    assert offsets.get("a", "topic2", 0) == 6


def test_a_deleted_group_takes_its_progress_along() -> None:
    offsets = Offsets(None)
    offsets.commit("a", "topic", 0, 5)
    offsets.commit("aa", "topic", 0, 6)
    offsets.remove_group("a")
    assert offsets.get("a", "topic", 0) is None
    assert offsets.get("aa", "topic", 0) == 6


def test_topics_and_groups_with_progress_are_known() -> None:
    offsets = Offsets(None)
    for group, topic in (("g", "t"), ("g", "u"), ("h", "t")):
        offsets.commit(group, topic, 0, 1)
    assert offsets.topics("g") == ["t", "u"]
    assert offsets.topics("unknown") == []
    assert offsets.groups() == ["g", "h"]
