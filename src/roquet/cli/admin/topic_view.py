"""Topic view: a topic as lines and tables."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from roquet.cli.terminal import output
from roquet.cli.terminal.output import table

if TYPE_CHECKING:
    from roquet.admin.topics import TopicInfo


def topic_parts(topic: "TopicInfo") -> Iterator[Any]:
    """Everything about a topic: lines and tables, one below the other."""
    yield f"{topic.name}  {output.known_quantity(topic.messages, 'message')}"
    if topic.order_conf:
        yield f"ordered queues: {topic.order_conf}"
    groups = "not known" if topic.groups is None else ", ".join(topic.groups) or "nobody"
    yield f"read by: {groups}"
    places = table("broker", "read queues", "write queues", "permission", "settings")
    for place in topic.places:
        extra = {**(place.attributes or {}), **({"order": "true"} if place.order else {})}
        places.add_row(
            place.broker,
            str(place.read_queues),
            str(place.write_queues),
            place.permission,
            ", ".join(f"{key}={value}" for key, value in sorted(extra.items())),
        )
    yield places
    queues = table("broker", "queue", "begin", "end", "messages", "last stored", numbers=1)
    for queue in topic.queues:
        queues.add_row(
            queue.broker,
            str(queue.queue_id),
            f"{queue.begin:,}",
            f"{queue.end:,}",
            f"{queue.end - queue.begin:,}",
            output.time_text(queue.stored_ms),
        )
    yield queues
    for problem in topic.problems:
        yield f"! {problem}"
