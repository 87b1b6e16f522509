import msgspec
from hypothesis import given
from hypothesis import strategies as st

from roquet.model.queue import MessageQueue, short_text

queues = st.builds(
    MessageQueue,
    topic=st.sampled_from(["orders", "flights"]),
    broker_name=st.sampled_from(["broker-a", "broker-b", "broker-10"]),
    queue_id=st.integers(0, 20),
)


def test_a_queue_reads_like_an_address() -> None:
    assert str(MessageQueue("orders", "broker-a", 3)) == "orders@broker-a:3"


@given(st.lists(queues))
def test_every_member_of_a_group_sorts_the_queues_alike(unsorted: list[MessageQueue]) -> None:
    by_hand = sorted(unsorted, key=lambda q: (q.topic, q.broker_name, q.queue_id))
    assert sorted(unsorted) == by_hand


def test_queue_ids_sort_as_numbers() -> None:
    assert MessageQueue("orders", "a", 9) < MessageQueue("orders", "a", 10)


def test_equal_addresses_are_one_key() -> None:
    assert len({MessageQueue("orders", "a", 1), MessageQueue("orders", "a", 1)}) == 1


def test_its_json_is_javas() -> None:
    java = b'{"brokerName":"broker-d","queueId":0,"topic":"Topic6"}'
    queue = msgspec.json.decode(java, type=MessageQueue)
    assert queue == MessageQueue("Topic6", "broker-d", 0)
    assert msgspec.json.encode(queue, order="sorted") == java


def test_many_queues_are_one_short_text() -> None:
    held = [MessageQueue("orders", "a", n) for n in (6, 0, 1, 2, 3)]
    held += [MessageQueue("orders", "b", 0), MessageQueue("bills", "a", 7)]
    assert short_text(held) == "bills@a:7 orders@a:0-3,6 orders@b:0"
    assert short_text([]) == ""
