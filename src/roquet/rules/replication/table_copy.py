"""Table copy: what a replica takes over from its master's tables, and what it leaves alone.

A table that comes over the network is checked row by row: a row that the broker itself could not
have made is left out. Topics that the master lacks are deleted here only with a proof, a tombstone
or a table that is not older than the one before: a master that lost its table of topics must not
delete the messages that its replica still has.
"""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from roquet.model import names
from roquet.model.topic import DataVersion, SubscriptionGroup, TopicConfig

QUEUES_MAX: Final = 16_384
"""Queues of one topic on one broker."""

OFFSET_MAX: Final = 2**63 - 1

PERMISSION_MAX: Final = 15
LEVELS_MAX: Final = 1_024
"""Delay levels that a broker may have; Apache's has 18 by default."""


class MasterTopics(msgspec.Struct, frozen=True, kw_only=True):
    """The topics of a master, all of one version."""

    configs: Mapping[str, TopicConfig]
    version: DataVersion
    ids: Mapping[str, str] | None = None
    """Ids by topic; None from a broker that gives none."""
    deleted: Mapping[str, int] | None = None
    """Deleted topics, and the position in front of which their records are; None from a broker that
    does not tell. A topic that was made anew is in both tables."""


class TopicChanges(msgspec.Struct, frozen=True, kw_only=True):
    """Changes that make the own topics those of the master."""

    changed: tuple[TopicConfig, ...]
    """New topics, and those with other settings."""
    deleted: Mapping[str, int]
    """Topics to delete, and the position in front of which their records are."""
    dropped: tuple[str, ...]
    """Topics without messages to remove from the table."""
    unproven: tuple[str, ...]
    """Topics that the master lacks and that stay: nothing shows that they were deleted."""


def topic_changes(
    own: Mapping[str, TopicConfig],
    master: MasterTopics,
    *,
    deleted_before: Callable[[str], int],
    has_messages: Callable[[str], bool],
    is_system: Callable[[str], bool],
    seen_end: int | None,
) -> TopicChanges:
    """Changes by which a replica follows its master's topics.

    `seen_end`: for a master without tombstones, a position of its log from before it gave the
    table: a topic that it lacks has no living record in front of it. None: the table may be older
    than the one before, and no topic with messages is deleted.
    """
    deleted: dict[str, int] = {
        topic: position
        for topic, position in (master.deleted or {}).items()
        if position > deleted_before(topic)
    }
    dropped: list[str] = []
    unproven: list[str] = []
    for topic in own.keys() - master.configs.keys() - deleted.keys():
        if is_system(topic):
            continue
        if not has_messages(topic):
            dropped.append(topic)
        elif master.deleted is None and seen_end is not None:
            deleted[topic] = seen_end
        else:
            unproven.append(topic)
    return TopicChanges(
        changed=tuple(
            config for topic, config in master.configs.items() if own.get(topic) != config
        ),
        deleted=deleted,
        dropped=tuple(sorted(dropped)),
        unproven=tuple(sorted(unproven)),
    )


def is_not_older(version: DataVersion, before: DataVersion | None) -> bool:
    """Whether a table of this version may follow one of another; None: there was none before."""
    return before is None or version.order >= before.order


def is_legal_topic(name: str) -> bool:
    """Whether a broker may have such a topic."""
    return names.topic_fault(name) is None


def legal_topics(table: Mapping[str, TopicConfig]) -> dict[str, TopicConfig]:
    """The topics that a broker may have, each named by its key."""
    return {
        name: config
        if config.topic_name == name
        else msgspec.structs.replace(config, topic_name=name)
        for name, config in table.items()
        if is_legal_topic(name)
        and 0 <= config.read_queue_nums <= QUEUES_MAX
        and 0 <= config.write_queue_nums <= QUEUES_MAX
        and 0 <= config.perm <= PERMISSION_MAX
    }


def legal_groups(table: Mapping[str, SubscriptionGroup]) -> dict[str, SubscriptionGroup]:
    """The groups that a broker may have, each named by its key."""
    return {
        name: config
        if config.group_name == name
        else msgspec.structs.replace(config, group_name=name)
        for name, config in table.items()
        if names.group_fault(name) is None
    }


def legal_offsets(table: Mapping[str, Mapping[int, int]]) -> dict[str, dict[int, int]]:
    """Progress by "topic@group", without queues and offsets that cannot be.

    A row of which nothing is left is left out; one without queues says that there is no progress.
    """
    legal: dict[str, dict[int, int]] = {}
    for key, queues in table.items():
        topic, _, group = key.partition("@")
        if not is_legal_topic(topic) or names.group_fault(group) is not None:
            continue
        left = {
            queue_id: offset
            for queue_id, offset in queues.items()
            if 0 <= queue_id < QUEUES_MAX and 0 <= offset <= OFFSET_MAX
        }
        if left or not queues:
            legal[key] = left
    return legal


def legal_delay_offsets(table: Mapping[int, int]) -> dict[int, int]:
    """Progress of delay levels, 1 the first, without levels and offsets that cannot be."""
    return {
        level: offset
        for level, offset in table.items()
        if 1 <= level <= LEVELS_MAX and 0 <= offset <= OFFSET_MAX
    }


def legal_forbidden(table: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, int]]:
    """Bits of what groups are forbidden, by group and topic."""
    return {
        group: dict(topics)
        for group, topics in table.items()
        if topics and names.group_fault(group) is None and all(map(is_legal_topic, topics))
    }


def legal_tombstones(table: Mapping[str, int], log_end: int) -> dict[str, int]:
    """Positions of deleted topics that the master's log has reached."""
    return {
        topic: position
        for topic, position in table.items()
        if is_legal_topic(topic) and 0 <= position <= log_end
    }
