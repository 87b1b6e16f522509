"""Topic preview: what an update, a resize or a deletion of a topic changes, in words."""

from collections.abc import Iterator, Sequence
from typing import Any

from roquet.admin.topics import TopicBrokerInfo, TopicInfo, TopicSettings, permission_text
from roquet.model.printable_text import quantity


class TopicChange:
    """A change that `topic update` would make on some of a topic's brokers."""

    def __init__(self, topic: TopicInfo, settings: TopicSettings, brokers: Sequence[str]) -> None:
        self.brokers = brokers
        self._topic = topic
        self._settings = settings
        self._places = [place for place in topic.places if place.broker in brokers]

    @property
    def hides(self) -> bool:
        """Whether messages are in queues, or would get into queues, that can no longer be read."""
        return any(map(self._is_hiding, self._places))

    def preview(self) -> Iterator[str]:
        """Lines that say what changes, broker by broker."""
        for place in self._places:
            reads, writes = self._counts(place)
            is_same = (reads, writes) == (place.read_queues, place.write_queues)
            then = "as before" if is_same else f"then {writes} and {reads}"
            yield (
                f"{place.broker}: {quantity(place.write_queues, 'queue')} to write and "
                f"{place.read_queues} to read, {then}{self._rights(place)}"
            )
        if self.hides:
            yield (
                "messages in queues that cannot be read are delivered to nobody: "
                f"{quantity(self._hidden, 'stored message')}, and what is sent to them; "
                "`roquet topic resize` leaves none behind"
            )
        yield from self._topic.problems

    def fields(self) -> dict[str, Any]:
        """The change for JSON."""
        each = [(place, *self._counts(place)) for place in self._places]
        return {
            "name": self._topic.name,
            "brokers": [
                {"broker": place.broker, "read_queues": reads, "write_queues": writes}
                for place, reads, writes in each
            ],
            "hidden": self._hidden,
        }

    @property
    def _hidden(self) -> int:
        reads = {place.broker: self._counts(place)[0] for place in self._places}
        return sum(
            queue.end - queue.begin
            for queue in self._topic.queues
            if queue.queue_id >= reads.get(queue.broker, queue.queue_id + 1)
        )

    def _counts(self, place: TopicBrokerInfo) -> tuple[int, int]:
        reads, writes = self._settings.read_queues, self._settings.write_queues
        return (
            place.read_queues if reads is None else reads,
            place.write_queues if writes is None else writes,
        )

    def _rights(self, place: TopicBrokerInfo) -> str:
        wanted = self._settings.permission
        if wanted is None:
            return ""
        return f"; permission {place.permission}, then {permission_text(wanted)}"

    def _is_hiding(self, place: TopicBrokerInfo) -> bool:
        reads, writes = self._counts(place)
        is_same = (reads, writes) == (place.read_queues, place.write_queues)
        return not is_same and (reads < place.read_queues or reads < writes)


def resize_preview(topic: TopicInfo, count: int, broadcasting: Sequence[str]) -> Iterator[str]:
    """Lines that say what a resize changes, broker by broker."""
    for place in topic.places:
        yield (
            f"{place.broker}: {quantity(place.write_queues, 'queue')} to write and "
            f"{place.read_queues} to read, then {count}"
        )
    if not any(place.read_queues > count for place in topic.places):
        return
    if left := _messages_from(topic, count):
        waited = [group for group in topic.groups or () if group not in broadcasting]
        readers = f"once {', '.join(waited)} have read them" if waited else "at once"
        yield (
            f"the queues from {count} on are removed {readers}; "
            f"{quantity(left, 'stored message')} in them can then no longer be read"
        )
    if left:
        yield (
            "not waited for: Spark streams, archives and materialized tables, which keep their own"
            " offsets (publishProgress makes a group of them): run them to the end first; one that"
            " has not read all says so, and reads the rest once the topic has these queues again"
        )
    if broadcasting:
        yield (
            f"not waited for: {', '.join(broadcasting)}; members that broadcast keep their own "
            "progress, and do not get what they have not read of these queues"
        )


def resize_fields(topic: TopicInfo, count: int, broadcasting: Sequence[str]) -> dict[str, Any]:
    """A resize for JSON."""
    shrinks = any(place.read_queues > count for place in topic.places)
    return {
        "name": topic.name,
        "brokers": [place.broker for place in topic.places],
        "queues": count,
        "messages": _messages_from(topic, count) if shrinks else 0,
        "groups": topic.groups,
        "not_waited_for": list(broadcasting) if shrinks else [],
    }


def delete_preview(topic: TopicInfo) -> Iterator[str]:
    """Lines that say what is deleted with a topic."""
    messages = "number of messages not known"
    if topic.messages is not None:
        messages = quantity(topic.messages, "message")
    yield f"{topic.name} on {broker_names(topic)}: {messages}"
    if topic.groups:
        yield f"groups that read it: {', '.join(topic.groups)}"
    yield from topic.problems


def delete_fields(topic: TopicInfo) -> dict[str, Any]:
    """A deletion for JSON."""
    return {
        "name": topic.name,
        "brokers": [place.broker for place in topic.places],
        "messages": topic.messages,
        "groups": topic.groups,
    }


def broker_names(topic: TopicInfo) -> str:
    """The names of a topic's brokers."""
    return ", ".join(place.broker for place in topic.places)


def _messages_from(topic: TopicInfo, count: int) -> int:
    return sum(queue.end - queue.begin for queue in topic.queues if queue.queue_id >= count)
