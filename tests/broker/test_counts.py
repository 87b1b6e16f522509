from roquet.broker.counts import CHECKPOINT, DELAY, NORMAL, SIZES_MAX, BrokerCounts, StoredMessages
from roquet.metrics.counts import SERIES_MAX


def test_a_batch_counts_all_messages_and_once_its_average_size() -> None:
    stored = StoredMessages()
    stored.add_batch(4, 8_000)
    stored.add_new_size(500)
    assert (stored.count, stored.size) == (5, 8_500)
    assert stored.sizes.counts[:2] == [1, 1]
    assert (stored.count, stored.size) == (5, 8_500)


def test_many_messages_are_counted_before_their_sizes_fill_the_memory() -> None:
    counts = BrokerCounts()
    counts.counts_stored = True
    sizes = [*range(1, SIZES_MAX + 10), 10, 10]
    for size in sizes:
        counts.note_stored("orders", NORMAL, size)
    ((_, stored),) = counts.stored.items()
    assert len(stored.by_size) < SIZES_MAX
    assert (stored.count, stored.size) == (len(sizes), sum(sizes))
    assert (stored.sizes.count, stored.sizes.sum) == (len(sizes), sum(sizes))
    assert (stored.count, stored.size) == (len(sizes), sum(sizes))


def test_messages_of_retry_and_dead_letter_topics_do_not_count() -> None:
    counts = BrokerCounts()
    counts.counts_stored = True
    counts.note_stored("orders", NORMAL, 10)
    counts.note_stored("%RETRY%billing", DELAY, 10)
    counts.note_stored("%DLQ%billing", NORMAL, 10)
    counts.note_batch("orders", NORMAL, 2, 30)
    assert [labels for labels, _ in counts.stored.items()] == [("orders", NORMAL)]


def test_a_deleted_topic_and_a_deleted_group_give_their_places_back() -> None:
    counts = BrokerCounts()
    counts.counts_stored = True
    for topic in ("gone", "stays"):
        counts.note_stored(topic, NORMAL, 10)
        for by_topic in (counts.commits, counts.rollbacks, counts.timer_enqueued):
            by_topic.add(topic)
        counts.delay_s.observe(topic, value=1)
        for group in ("billing", "audit"):
            counts.dead_letters.add(group, topic)
            counts.retention_unread.add(group, topic)
            counts.redelivered.add(topic, group)
            counts.revive_notes.add(topic, group, CHECKPOINT)
    counts.forget(["gone"])
    assert list(counts.normal_sizes) == ["stays"]
    counts.forget(group="audit")
    assert [labels for labels, _ in counts.stored.items()] == [("stays", NORMAL)]
    for by_topic in (counts.commits, counts.rollbacks, counts.timer_enqueued):
        assert [labels for labels, _ in by_topic.items()] == [("stays",)]
    assert [labels for labels, _ in counts.delay_s.items()] == [("stays",)]
    assert [labels for labels, _ in counts.dead_letters.items()] == [("billing", "stays")]
    assert [labels for labels, _ in counts.retention_unread.items()] == [("billing", "stays")]
    assert [labels for labels, _ in counts.redelivered.items()] == [("stays", "billing")]
    assert [labels for labels, _ in counts.revive_notes.items()] == [
        ("stays", "billing", CHECKPOINT)
    ]


def test_topics_beyond_the_limit_are_counted_together_and_told() -> None:
    counts = BrokerCounts()
    counts.counts_stored = True
    for number in range(SERIES_MAX + 7):
        counts.note_stored(f"t{number}", NORMAL, 10)
    assert len(list(counts.stored.items())) == SERIES_MAX + 1
    assert counts.overflow == 7
    assert counts.normal_sizes.keys() == {f"t{number}" for number in range(SERIES_MAX)}


def test_a_message_of_a_known_size_is_counted_by_its_topic_alone() -> None:
    counts = BrokerCounts()
    counts.counts_stored = True
    counts.note_stored("orders", DELAY, 10)
    assert "orders" not in counts.normal_sizes
    counts.note_stored("orders", NORMAL, 10)
    counts.normal_sizes["orders"][10] += 1
    stored = dict(counts.stored.items())
    assert stored["orders", NORMAL].sizes.count == 2  # a page puts them into buckets
    assert counts.normal_sizes["orders"] == {}
    counts.note_stored("orders", NORMAL, 20)
    counts.normal_sizes["orders"][20] += 1
    assert (stored["orders", NORMAL].count, stored["orders", NORMAL].size) == (4, 60)
    assert stored["orders", DELAY].count == 1
