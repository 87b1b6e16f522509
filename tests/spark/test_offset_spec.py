"""Offset specs: every form gives an offset for every queue, and errors name what is wrong."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.lake.queue_offsets import QueueKey, QueueOffsets, to_json
from roquet.model.errors import ConfigError, UsageError
from roquet.spark import offset_spec
from roquet.spark.offset_spec import AtTime, GroupProgress, SpecByTopic, TimeAgo

A0, A1, B0 = ("orders", "a", 0), ("orders", "a", 1), ("paid", "a", 0)
EARLIEST: QueueOffsets = {A0: 10, A1: 0, B0: 5}
LATEST: QueueOffsets = {A0: 90, A1: 0, B0: 50}
NOW = 1_800_000_000_000


class FakeLookup:
    """Queues whose message `n` was stored at NOW - 1000 + n ms; `billing` has read some of them."""

    def now_ms(self) -> int:
        return NOW

    def committed(self, queue: QueueKey, group: str) -> int | None:
        return {("billing", A0): 33, ("billing", B0): 2}.get((group, queue))

    def first_since(self, _queue: QueueKey, span: tuple[int, int], ms: int) -> int:
        return min(max(ms - (NOW - 1000), span[0]), span[1])


def starts(text: str) -> QueueOffsets:
    edge = offset_spec.check_topics(offset_spec.parse(text, "x"), ("orders", "paid"), "x")
    return offset_spec.starting_offsets(edge, EARLIEST, LATEST, FakeLookup())


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        (" Earliest ", EARLIEST),
        ("latest", LATEST),
        (str(NOW - 980), {A0: 20, A1: 0, B0: 20}),
        ("-960ms", {A0: 40, A1: 0, B0: 40}),
        ("-1 day", EARLIEST),
        ("2040-01-01", LATEST),
        ("group:billing", {A0: 33, A1: 0, B0: 2}),
        ("group: nobody", EARLIEST),
        ('{"orders": {"a": {"0": 23}}}', {A0: 23, A1: 0, B0: 5}),
        ('{"orders": {"a": {"0": -1}}, "paid": {"a": {"0": -2}}}', {A0: 90, A1: 0, B0: 5}),
        ('{"orders": {"a": {"0": 3}}}', {A0: 3, A1: 0, B0: 5}),
        ('{"orders": "latest"}', {A0: 90, A1: 0, B0: 5}),
        ('{"*": "latest"}', LATEST),
        ('{"paid": {"a": {"0": 7}}, "*": "latest"}', {A0: 90, A1: 0, B0: 7}),
        ('{"paid": "group:billing", "orders": "-960 ms"}', {A0: 40, A1: 0, B0: 2}),
        ('{"paid": {}}', EARLIEST),
    ],
)
def test_every_form_of_offsets_is_parsed(text: str, meant: QueueOffsets) -> None:
    assert starts(text) == meant


def test_the_default_end_is_the_latest() -> None:
    edge = offset_spec.parse('{"orders": {"a": {"0": 23}}}', "x")
    assert offset_spec.ending_offsets(edge, EARLIEST, LATEST, FakeLookup()) == {
        A0: 23,
        A1: 0,
        B0: 50,
    }
    assert offset_spec.ending_offsets(TimeAgo(950), EARLIEST, LATEST, FakeLookup()) == {
        A0: 50,
        A1: 0,
        B0: 50,
    }


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("2026-01-31T12:00", AtTime(1_769_860_800_000)),
        ("2026-01-31T12:00:00Z", AtTime(1_769_860_800_000)),
        ("2026-01-31T13:00+01:00", AtTime(1_769_860_800_000)),
        ("2026-01-31", AtTime(1_769_817_600_000)),
        ("1769860800000", AtTime(1_769_860_800_000)),
        ("- 10 minutes", TimeAgo(600_000)),
        ("-1.5h", TimeAgo(5_400_000)),
        ("-2 Weeks", TimeAgo(1_209_600_000)),
    ],
)
def test_a_time_in_each_of_its_forms(text: str, meant: AtTime | TimeAgo) -> None:
    assert offset_spec.parse_time(text, "startingTime") == meant
    assert offset_spec.parse(text, "startingOffsets") == meant


def test_one_topic_need_not_be_named() -> None:
    edge = offset_spec.parse('{"a": {"0": 23, "1": -1}}', "x")
    assert offset_spec.check_topics(edge, ("orders",), "x") == {A0: 23, A1: -1}
    with pytest.raises(ConfigError, match="x must name topics"):
        offset_spec.check_topics(edge, ("orders", "paid"), "x")


def test_offsets_in_kafkas_form_are_those_of_a_topics_only_broker() -> None:
    assert starts('{"paid": {"0": 7}}') == {**EARLIEST, B0: 7}
    assert starts('{"paid": {"0": 7}, "orders": "latest"}') == {A0: 90, A1: 0, B0: 7}
    assert starts('{"paid": {"0": -1}, "orders": {"a": {"0": 23}}}') == {A0: 23, A1: 0, B0: 50}
    pattern = offset_spec.check_topics(offset_spec.parse('{"paid": {"0": 7}}', "x"), (), "x")
    assert offset_spec.starting_offsets(pattern, EARLIEST, LATEST, FakeLookup())[B0] == 7
    with pytest.raises(ConfigError, match="topic 'paid' has no queue 4 of a broker"):
        starts('{"paid": {"4": 7}}')
    unread = offset_spec.check_topics(offset_spec.parse('{"a": {"0": 7}}', "x"), (), "x")
    with pytest.raises(ConfigError, match="offsets of topic 'a', which is not read; their form is"):
        offset_spec.starting_offsets(unread, EARLIEST, LATEST, FakeLookup())


def test_offsets_in_kafkas_form_do_not_say_which_of_several_brokers_they_mean() -> None:
    spec = offset_spec.check_topics(offset_spec.parse('{"t": {"0": 5}}', "x"), ("t",), "x")
    ends = {("t", broker, 0): 9 for broker in ("a", "b")}
    form = r'a, b have one each, say which is meant: \{"t": \{"a": \{"0": 5}, "b": \{"0": 5}}}'
    with pytest.raises(ConfigError, match=form):
        offset_spec.ending_offsets(spec, ends, ends, FakeLookup())


@pytest.mark.parametrize("text", ['{"order": "latest"}', '{"order": {"a": {"0": 1}}}'])
def test_a_topic_that_is_not_read_is_named(text: str) -> None:
    edge = offset_spec.parse(text, "x")
    with pytest.raises(ConfigError, match="x: topic 'order' is not read; did you mean 'orders'"):
        offset_spec.check_topics(edge, ("orders",), "x")
    assert offset_spec.check_topics(edge, (), "x") == edge, "a pattern may match it yet"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("first", "x: 'first' is not earliest, latest, a time"),
        ("", "is not earliest"),
        ("-10 fortnights", "is not earliest"),
        ("-10", "is not earliest"),
        ("17", "x: 17 is no time in ms since 1970, which has 12 or 13 digits"),
        ("9" * 25, "x: 9{25} is no time in ms since 1970"),
        ("[1]", "is not earliest"),
        ("{", "is no JSON"),
        ("{}", "there is nothing in it"),
        ('{"orders": {"a": {"0": -3}}}', "offset -3 of queue '0' of broker 'a'"),
        ('{"orders": {"a": {"0": "1"}}}', "offset '1' of queue '0'"),
        ('{"orders": {"a": {"0": true}}}', "offset True"),
        ('{"orders": {"a": {"zero": 1}}}', "of queue 'zero'"),
        ('{"orders": {"a": {"0": 1}, "b": 2}}', "2 for broker 'b'"),
        ('{"orders": 5}', "5 is not earliest"),
        ('{"orders": "first"}', "'first' is not earliest"),
        ('{"*": {"a": {"0": 1}}, "orders": "latest"}', "is not earliest"),
    ],
)
def test_offsets_that_cannot_be_parsed_are_named(text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        offset_spec.parse(text, "x")


def test_a_wrong_time_is_named() -> None:
    with pytest.raises(ConfigError, match="startingTime: 'earliest' is not a time"):
        offset_spec.parse_time("earliest", "startingTime")


def test_a_group_must_be_one() -> None:
    with pytest.raises(UsageError, match="group name"):
        offset_spec.parse("group: ", "x")


def test_an_offset_that_there_is_not_yet_is_named() -> None:
    text = "topic 'orders', queue 0 of broker 'a' is to be read from 91, but has messages up to 90"
    with pytest.raises(ConfigError, match=text):
        starts('{"orders": {"a": {"0": 91}}}')
    with pytest.raises(ConfigError, match="topic 'orders' has no queue 7 of a broker 'a'"):
        starts('{"orders": {"a": {"7": 1}}}')


def test_deleted_offsets_are_kept_so_that_their_loss_is_detected() -> None:
    assert starts('{"orders": {"a": {"0": 3}}}')[A0] == 3
    assert (
        offset_spec.starting_offsets(GroupProgress("billing"), EARLIEST, LATEST, FakeLookup())[B0]
        == 2
    )


OFFSETS: Any = st.dictionaries(
    st.tuples(st.sampled_from(["t", "u"]), st.sampled_from(["a", "b"]), st.integers(0, 9)),
    st.integers(-2, 10**9),
    min_size=1,
)


@given(OFFSETS)
def test_offsets_are_read_as_a_checkpoint_shows_them(offsets: QueueOffsets) -> None:
    assert offset_spec.parse(json.dumps(to_json(offsets)), "x") == offsets


def test_each_topic_of_a_mixture_has_its_own_offsets() -> None:
    assert offset_spec.parse('{"a": "latest", "b": {"x": {"0": 1}}}', "x") == SpecByTopic(
        {"a": "latest", "b": {("b", "x", 0): 1}}
    )


def test_an_edge_is_the_same_everywhere_or_named_for_each_queue() -> None:
    assert offset_spec.explicit_offsets("earliest", EARLIEST, LATEST, EARLIEST) == EARLIEST
    assert offset_spec.explicit_offsets("latest", EARLIEST, LATEST, EARLIEST) == LATEST
    named: QueueOffsets = {A0: 7, B0: -1}
    assert offset_spec.explicit_offsets(named, EARLIEST, LATEST, EARLIEST) == {A0: 7, A1: 0, B0: 50}
    assert offset_spec.explicit_offsets({B0: -2}, EARLIEST, LATEST, LATEST) == {
        A0: 90,
        A1: 0,
        B0: 5,
    }


def test_a_queue_that_there_is_not_is_named() -> None:
    with pytest.raises(ConfigError, match="'orders' has no queue 9 of a broker 'a'"):
        offset_spec.explicit_offsets({("orders", "a", 9): 1}, EARLIEST, LATEST, EARLIEST)
