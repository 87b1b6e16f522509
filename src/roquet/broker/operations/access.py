"""Access: topics whose messages clients may not read."""

from roquet.broker.control import ControlPlane
from roquet.model.names import INTERNAL_TOPICS


def internal_topic_fault(control: ControlPlane, topic: str) -> str | None:
    """Why clients may not read a topic's messages: they are not delivered yet. None: they may.

    Records stay readable by their position, which only who sent or lists them knows.
    """
    if topic not in INTERNAL_TOPICS or control.settings.config.read_internal_topics:
        return None
    return (
        f"the topic[{topic}] holds messages that are not delivered yet: "
        "nobody reads it unless the broker has read_internal_topics=true"
    )
