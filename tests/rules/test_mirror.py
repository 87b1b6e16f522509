import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.model import properties as names
from roquet.model.queue import MessageQueue
from roquet.rules.mirror import (
    Origin,
    copied_properties,
    origin_of,
    target_queues,
    translated_offset,
)

QUEUE = MessageQueue("orders", "broker-a", 2)
brokers = st.lists(st.sampled_from(["a", "b", "c", "d", "e"]), min_size=1, unique=True)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=9)


@given(
    st.builds(MessageQueue, texts, texts, st.integers(0, 99)), texts, texts, st.integers(0, 2**59)
)
def test_the_origin_of_a_copy_is_read_back_whatever_its_names(
    queue: MessageQueue, cluster: str, message_id: str, offset: int
) -> None:
    properties = {names.UNIQUE_KEY: message_id} if message_id else {}
    copied = copied_properties(properties, cluster, queue, offset, 17)
    assert origin_of(copied) == Origin(cluster, queue, offset, message_id)
    assert copied[names.BORN_MS] == "17"


def test_a_message_made_of_a_copy_is_a_new_one() -> None:
    copied = copied_properties({names.UNIQUE_KEY: "one"}, "A", QUEUE, 7, 0)
    assert origin_of({**copied, names.UNIQUE_KEY: "two"}) is None


@pytest.mark.parametrize("text", ["", "A/b", "A/orders/broker-a/x/7/", "A/o/b/1/-7/", "A/o/b/1/²/"])
def test_a_property_that_is_no_origin_is_none(text: str) -> None:
    assert origin_of({names.MIRRORED_FROM: text}) is None


def test_a_copy_keeps_what_users_set_and_not_what_happened_to_the_original() -> None:
    original = {"colour": "red", names.TAGS: "T", names.KEYS: "k", names.DELAY: "3"}
    copied = copied_properties({**original, names.RETRY_TOPIC: "x"}, "A", QUEUE, 0, 0)
    assert copied.keys() == {"colour", names.TAGS, names.KEYS, names.MIRRORED_FROM, names.BORN_MS}


def test_an_origin_is_from_one_queue_of_one_cluster() -> None:
    origin = Origin("A", QUEUE, 7, "")
    assert origin.is_from("A", QUEUE)
    assert not origin.is_from("B", QUEUE)


def queues(sizes: dict[str, int]) -> list[MessageQueue]:
    return [MessageQueue("t", name, n) for name, size in sizes.items() for n in range(size)]


@given(st.dictionaries(st.sampled_from("abcdxyz"), st.integers(1, 5), min_size=1), brokers)
def test_no_two_queues_have_the_same_target_and_equal_names_keep_their_numbers(
    sizes: dict[str, int], targets: list[str]
) -> None:
    sources = queues(sizes)
    mapped = target_queues(sources, targets)
    assert len(set(mapped.values())) == len(sources)
    assert {queue.broker_name for queue in mapped.values()} <= set(targets)
    if len(sizes) == 1:
        assert all(a.queue_id == b.queue_id for a, b in mapped.items())


@given(st.dictionaries(st.sampled_from("abcdxyz"), st.integers(1, 5), min_size=1), brokers)
def test_more_queues_of_a_topic_do_not_move_those_it_has(
    sizes: dict[str, int], targets: list[str]
) -> None:
    before = target_queues(queues(sizes), targets)
    after = target_queues(queues({name: size + 2 for name, size in sizes.items()}), targets)
    assert {queue: after[queue] for queue in before} == before


def test_a_target_without_brokers_is_an_error() -> None:
    with pytest.raises(ValueError, match="no broker"):
        target_queues([QUEUE], [])


def test_progress_takes_the_lower_offset_and_never_moves_back() -> None:
    assert translated_offset(9, None, None) == 9
    assert translated_offset(9, 4, 3) == 4
    assert translated_offset(9, 4, 4) is None
