from collections.abc import Callable
from pathlib import Path

import pytest

from roquet.broker.tables.offsets import REMOVED_MAX, ConsumerOffsets
from roquet.broker.tables.saved_table import TableFile
from roquet.model.topic import DataVersion
from roquet.store.filesystem.files import RealFiles

GENUINE = Path(__file__).parents[2] / "vectors" / "config"


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_apache_progress_is_taken_over(version: str, tmp_path: Path) -> None:
    path = tmp_path / "consumerOffset.json"
    path.write_bytes((GENUINE / version / "consumerOffset.json").read_bytes())
    offsets = ConsumerOffsets(TableFile(RealFiles(), path))
    assert offsets.get("CG_main", "Bulk", 0) == 310
    assert offsets.get("CG_dead", "TopicC", 0) == 25
    assert offsets.get("CG_main", "TopicA", 9) is None


def test_a_group_has_no_progress_before_it_commits() -> None:
    assert ConsumerOffsets(None).get("group", "topic", 0) is None


def test_progress_beyond_the_ends_of_queues_is_lowered() -> None:
    offsets = ConsumerOffsets(None)
    for group, topic, queue_id in (("a", "t", 0), ("b", "t", 0), ("a", "t", 1), ("a", "u", 0)):
        offsets.commit(group, topic, queue_id, 5)
    offsets.unsaved = False
    ends = {("t", 0): 3, ("t", 1): 5, ("u", 0): 9}
    assert offsets.lower(lambda topic, queue_id: ends[topic, queue_id]) == 2
    assert [offsets.get(group, "t", 0) for group in "ab"] == [3, 3]
    assert (offsets.get("a", "t", 1), offsets.get("a", "u", 0)) == (5, 5)
    assert offsets.unsaved
    offsets.unsaved = False
    assert offsets.lower(lambda topic, queue_id: ends[topic, queue_id]) == 0
    assert not offsets.unsaved


def test_progress_is_kept_for_each_queue_and_group() -> None:
    offsets = ConsumerOffsets(None)
    offsets.commit("a", "topic", 0, 5)
    offsets.commit("b", "topic", 0, 6)
    offsets.commit("a", "topic", 1, 7)
    assert offsets.get("a", "topic", 0) == 5
    assert offsets.get("b", "topic", 0) == 6
    assert offsets.get("a", "topic", 1) == 7


def test_progress_may_go_back() -> None:
    offsets = ConsumerOffsets(None)
    offsets.commit("a", "topic", 0, 5)
    offsets.commit("a", "topic", 0, 2)
    assert offsets.get("a", "topic", 0) == 2


def test_the_same_progress_again_is_no_news() -> None:
    offsets = ConsumerOffsets(None)
    offsets.commit("a", "topic", 0, 5)
    offsets.unsaved = False
    offsets.commit("a", "topic", 0, 5)
    assert not offsets.unsaved


def test_a_deleted_topic_takes_its_progress_along() -> None:
    offsets = ConsumerOffsets(None)
    offsets.commit("a", "topic", 0, 5)
    offsets.commit("a", "topic2", 0, 6)
    offsets.remove_topics(["topic", "none"])
    assert offsets.get("a", "topic", 0) is None
    assert offsets.get("a", "topic2", 0) == 6


def test_a_deleted_group_takes_its_progress_along() -> None:
    offsets = ConsumerOffsets(None)
    offsets.commit("a", "topic", 0, 5)
    offsets.commit("aa", "topic", 0, 6)
    offsets.remove_group("a")
    assert offsets.get("a", "topic", 0) is None
    assert offsets.get("aa", "topic", 0) == 6


def test_topics_and_groups_with_progress_are_known() -> None:
    offsets = ConsumerOffsets(None)
    for group, topic in (("g", "t"), ("g", "u"), ("h", "t")):
        offsets.commit(group, topic, 0, 1)
    assert offsets.topics("g") == ["t", "u"]
    assert offsets.topics("unknown") == []
    assert offsets.groups() == ["g", "h"]


def test_cloned_progress_is_independent() -> None:
    offsets = ConsumerOffsets(None)
    offsets.commit("a", "t", 0, 5)
    offsets.clone("a", "b", "t")
    offsets.clone("a", "b", "u")
    offsets.commit("a", "t", 0, 6)
    assert offsets.get("b", "t", 0) == 5
    assert offsets.topics("b") == ["t"]


def test_progress_in_one_queue_is_forgotten() -> None:
    offsets = ConsumerOffsets(None)
    for group, topic, queue_id in (("a", "t", 0), ("a", "t", 1), ("b", "t", 1), ("a", "u", 1)):
        offsets.commit(group, topic, queue_id, 5)
    offsets.unsaved = False
    offsets.remove_queue("t", 7)
    assert not offsets.unsaved
    offsets.remove_queue("t", 1)
    assert offsets.unsaved
    assert [offsets.get(g, "t", 1) for g in ("a", "b")] == [None, None]
    assert (offsets.get("a", "t", 0), offsets.get("a", "u", 1)) == (5, 5)


def test_progress_is_found_by_topic_by_group_and_by_queue() -> None:
    offsets = ConsumerOffsets(None)
    offsets.commit("a", "orders", 0, 5)
    offsets.commit("a", "paid", 1, 6)
    offsets.commit("b", "orders", 2, 7)
    assert offsets.groups_of("orders") == ["a", "b"]
    assert offsets.groups_of("x") == []
    assert offsets.queues("b", "orders") == {2: 7}
    assert offsets.queues("b", "paid") == {}
    assert offsets.by_group() == {"a": ["orders", "paid"], "b": ["orders"]}


def test_rows_that_changed_since_an_edition_are_told_with_what_they_hold_now() -> None:
    table = ConsumerOffsets(None)
    table.commit("a", "t", 0, 1)
    table.commit("b", "t", 0, 1)
    edition = table.edition
    table.commit("a", "t", 1, 2)
    table.remove_group("b")
    assert table.changed_since(edition) == {"t@a": {0: 1, 1: 2}, "t@b": {}}
    assert table.changed_since(0) == table.changed_since(edition)
    assert table.changed_since(table.edition) == {}


@pytest.mark.parametrize(
    "change",
    [
        lambda table: table.restore("a", "t", 0, None),
        lambda table: table.lower(lambda *_: 0),
        lambda table: table.clone("a", "b", "t"),
        lambda table: table.remove_queue("t", 0),
        lambda table: table.remove_topics(["t"]),
        lambda table: table.copy({"t@a": {0: 3}}, None),
    ],
    ids=["restore", "lower", "clone", "remove queue", "remove topic", "copy"],
)
def test_every_kind_of_change_is_told(change: Callable[[ConsumerOffsets], object]) -> None:
    table = ConsumerOffsets(None)
    table.commit("a", "t", 0, 5)
    edition = table.edition
    change(table)
    assert len(table.changed_since(edition)) == 1


def test_rows_of_a_master_replace_the_own_ones_and_others_stay() -> None:
    table = ConsumerOffsets(None)
    for group in ("a", "b", "c"):
        table.commit(group, "t", 0, 5)
    table.unsaved = False
    table.copy({"t@a": {1: 3}, "t@b": {}, "t@d": {}}, DataVersion(counter=9))
    assert (dict(table.queues("a", "t")), table.get("c", "t", 0)) == ({1: 3}, 5)
    assert table.groups() == ["a", "c"]
    assert (table.version.counter, table.unsaved) == (9, True)


def test_removed_rows_are_forgotten_when_there_are_many() -> None:
    table = ConsumerOffsets(None)
    for number in range(REMOVED_MAX + 10):
        table.commit(f"g{number}", "t", 0, 1)
        table.remove_group(f"g{number}")
    assert len(table.changed_since(0)) <= REMOVED_MAX + 1


def test_progress_that_is_removed_while_it_is_lowered_is_gone() -> None:
    offsets = ConsumerOffsets(None)
    for queue_id in range(3):
        offsets.commit("a", "t", queue_id, 5)
    offsets.commit("a", "u", 0, 5)
    steps = offsets.lowering(lambda *_: 3)
    assert next(steps)
    offsets.remove_topics(["t"])
    assert list(steps) == [False, False, True]
    assert offsets.get("a", "t", 1) is None
    assert offsets.get("a", "u", 0) == 3


def test_rows_that_were_lowered_for_a_save_are_copied_and_saved_again() -> None:
    offsets = ConsumerOffsets(None)
    offsets.commit("a", "t", 0, 5)
    offsets.before_save = lambda rows: rows["t@a"].update({0: 3})
    edition = offsets.edition
    offsets.save()
    assert offsets.content().offset_table == {"t@a": {0: 3}}
    assert (offsets.get("a", "t", 0), offsets.unsaved) == (5, False)
    assert offsets.changed_since(edition) == {}
    offsets.note_changed(["t@a"])
    assert offsets.changed_since(edition) == {"t@a": {0: 5}}
    assert offsets.unsaved


def test_a_row_ends_with_its_group_which_has_no_separator_in_it() -> None:
    offsets = ConsumerOffsets(None)
    offsets.commit("c", "orders@b", 0, 1)
    assert (offsets.groups_of("orders"), offsets.groups_of("orders@b")) == ([], ["c"])
    assert (offsets.topics("b@c"), offsets.topics("c")) == ([], ["orders@b"])
