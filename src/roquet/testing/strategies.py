"""Hypothesis strategies for our values: `@given(messages())` sends whatever a user may send."""

from typing import Final

from hypothesis import strategies as st

from roquet.model.message import Message
from roquet.model.names import BROKER_ONLY_TOPICS, GROUP_LENGTH_MAX, is_system_group
from roquet.model.properties import KEYS_SEPARATOR, RESERVED
from roquet.model.queue import MessageQueue
from roquet.model.topic import TopicConfig
from roquet.rules.tag_filter import is_single_tag

_NAME: Final = "%|_-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_SHORT: Final = 40
"""Characters of the longest text: longer ones find nothing more and take time."""

_SEPARATORS: Final = "\x00\x01\x02"
"""Characters that no property may hold: two separate properties, and a zero ends a text."""


def topic_names() -> st.SearchStrategy[str]:
    """Valid topic names."""
    return st.text(_NAME, min_size=1, max_size=_SHORT).filter(lambda n: n not in BROKER_ONLY_TOPICS)


def group_names() -> st.SearchStrategy[str]:
    """Valid group names."""
    names = st.text(_NAME, min_size=1, max_size=min(_SHORT, GROUP_LENGTH_MAX))
    return names.filter(lambda name: not is_system_group(name))


def texts(*, without: str = "") -> st.SearchStrategy[str]:
    """Valid property values, in any script, without the given characters."""
    characters = st.characters(codec="utf-8", exclude_characters=_SEPARATORS + without)
    return st.text(characters, min_size=1, max_size=_SHORT)


def properties() -> st.SearchStrategy[dict[str, str]]:
    """Properties that a user may set, without reserved names."""
    names = texts().filter(lambda name: name not in RESERVED)
    return st.dictionaries(names, texts(), max_size=4)


def messages(topic: str | None = None) -> st.SearchStrategy[Message]:
    """Messages that a user may send, to `topic` or to any topic."""
    words = texts(without=KEYS_SEPARATOR)
    return st.builds(
        Message,
        topic=topic_names() if topic is None else st.just(topic),
        body=st.binary(min_size=1, max_size=1000),
        tag=st.none() | words.filter(is_single_tag),
        keys=st.lists(words, max_size=3).map(tuple),
        order_key=st.none() | texts(),
        properties=properties(),
        flag=st.integers(-(2**31), 2**31 - 1),
    )


def queues(topic: str | None = None) -> st.SearchStrategy[MessageQueue]:
    """Queue addresses, of `topic` or of any topic."""
    topics = topic_names() if topic is None else st.just(topic)
    return st.builds(MessageQueue, topics, st.sampled_from(["a", "b", "c"]), st.integers(0, 15))


def topic_configs() -> st.SearchStrategy[TopicConfig]:
    """Topic configurations that an operator may set."""
    counts = st.integers(1, 64)
    return st.builds(
        TopicConfig,
        topic_name=topic_names(),
        read_queue_nums=counts,
        write_queue_nums=counts,
        perm=st.sampled_from([2, 4, 6]),
        order=st.booleans(),
    )
