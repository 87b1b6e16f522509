"""Probe: an unfiltered pull without long polling."""

from roquet.spark.cluster.probe import probe_call


def test_a_glance_is_for_all_messages_from_an_offset_on() -> None:
    call = probe_call("lake", ("orders", "broker-a", 3), 40, 2)
    assert (call.consumer_group, call.topic, call.queue_id) == ("lake", "orders", 3)
    assert (call.queue_offset, call.max_msg_nums, call.max_msg_bytes) == (40, 2, None)
    assert (call.subscription, call.expression_type) == ("*", "TAG")
    assert call.suspend_timeout_millis == call.commit_offset == 0


def test_its_bytes_may_be_bounded() -> None:
    assert probe_call("lake", ("orders", "broker-a", 3), 0, 32, 64).max_msg_bytes == 64
