"""Dead letter totals: how many messages a group gave up, by the statistics of all brokers.

Letters are counted in the dead-letter topic; those that were sent again by the progress of the
group `roquet-dlq` in it.
"""

import asyncio
from collections.abc import Mapping

import msgspec

from roquet.admin.client import AdminClient, failures_text, without_answers
from roquet.model import names
from roquet.wire.calls.admin.group import GetConsumeStats
from roquet.wire.calls.admin.stats import GetTopicStats, TopicStats
from roquet.wire.calls.bodies import ConsumeStats
from roquet.wire.codes import ResponseCode
from roquet.wire.fastjson import codec


class DeadLetterTotals(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of a group's dead letters; None where a broker does not tell."""

    total: int | None
    not_resent: int | None
    """Letters after the offset up to which all were sent again."""
    newest_ms: int | None = None
    """When the newest letter was given up; None without any, or as above."""
    fault: str | None = None
    """Why a number is not known."""


async def totals(admin: AdminClient, brokers: Mapping[str, str], group: str) -> DeadLetterTotals:
    """Count a group's dead letters on these brokers; no letters where it has no such topic."""
    topic = names.dlq_topic(group)
    progress = GetConsumeStats(consumer_group=names.DLQ_READER_GROUP, topic=topic)
    (stats, unknown), (resent, untold) = await asyncio.gather(
        admin.ask_each(brokers, GetTopicStats(topic=topic)), admin.ask_each(brokers, progress)
    )
    if silent := without_answers(unknown, ResponseCode.TOPIC_NOT_EXIST):
        return DeadLetterTotals(total=None, not_resent=None, fault=failures_text(silent))
    tables = [codec.loads(reply.body, TopicStats).offset_table for reply in stats.values()]
    ends = {queue: offsets for table in tables for queue, offsets in table.items()}
    done = {
        queue: read.consumer_offset
        for reply in resent.values()
        for queue, read in codec.loads(reply.body, ConsumeStats).offset_table.items()
    }
    left = sum(
        max(0, each.max_offset - max(each.min_offset, done.get(queue, 0)))
        for queue, each in ends.items()
    )
    return DeadLetterTotals(
        total=sum(each.max_offset - each.min_offset for each in ends.values()),
        not_resent=None if untold else left,
        fault=failures_text(untold) or None,
        newest_ms=max((each.last_update_timestamp for each in ends.values()), default=0) or None,
    )
