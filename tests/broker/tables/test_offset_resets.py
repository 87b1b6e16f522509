from roquet.broker.tables.offset_resets import OffsetResets


def test_a_reset_is_delivered_once() -> None:
    resets = OffsetResets()
    resets.put("g", "t", 3, 42)
    assert resets.get("g", "t", 3) == 42
    assert (resets.get("g", "t", 2), resets.get("h", "t", 3)) == (None, None)
    assert (resets.take("g", "t", 2), resets.take("h", "t", 3)) == (None, None)
    assert resets.take("g", "t", 3) == 42
    assert resets.take("g", "t", 3) is None
    assert not resets.pending


def test_the_last_reset_counts() -> None:
    resets = OffsetResets()
    for offset in (42, 7):
        resets.put("g", "t", 0, offset)
    assert resets.take("g", "t", 0) == 7


def test_each_queue_has_a_reset_of_its_own() -> None:
    resets = OffsetResets()
    for queue_id in (0, 1):
        resets.put("g", "t", queue_id, queue_id * 10)
    assert resets.take("g", "t", 1) == 10
    assert resets.get("g", "t", 0) == 0


def test_deleted_topics_and_groups_have_no_resets() -> None:
    resets = OffsetResets()
    for group, topic in (("g", "t"), ("g", "u"), ("h", "t"), ("h", "u")):
        resets.put(group, topic, 0, 1)
    resets.forget(topics=["t"])
    assert resets.pending.keys() == {("g", "u"), ("h", "u")}
    resets.forget(group="g")
    assert resets.pending.keys() == {("h", "u")}
