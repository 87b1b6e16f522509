"""What is told of a topic: all that is known, and what a change of it would do."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from roquet.cli.terminal import output
from roquet.cli.terminal.output import table

if TYPE_CHECKING:
    from roquet.admin.topics import TopicBrokerInfo, TopicInfo, TopicSettings


class TopicChange:
    """What `topic update` is asked for, on some of a topic's brokers."""

    def __init__(
        self, found: "TopicInfo", settings: "TopicSettings", brokers: Sequence[str]
    ) -> None:
        self.brokers = brokers
        self._found = found
        self._settings = settings
        self._places = [place for place in found.places if place.broker in brokers]

    @property
    def hides(self) -> bool:
        """Whether messages get into queues, or are in some, that nobody can read afterwards."""
        return any(map(self._is_hiding, self._places))

    def preview(self) -> Iterator[str]:
        """What will happen, broker by broker."""
        for place in self._places:
            reads, writes = self._counts(place)
            is_same = (reads, writes) == (place.read_queues, place.write_queues)
            then = "as before" if is_same else f"then {writes} and {reads}"
            yield (
                f"{place.broker}: {output.quantity(place.write_queues, 'queue')} to write and "
                f"{place.read_queues} to read, {then}{self._rights(place)}"
            )
        if self.hides:
            yield (
                "nobody gets what is in queues that cannot be read: "
                f"{output.quantity(self._hidden, 'stored message')}, and what is sent to them; "
                "`roquet topic resize` leaves none behind"
            )

    def fields(self) -> dict[str, Any]:
        """The same for programs."""
        each = [(place, *self._counts(place)) for place in self._places]
        return {
            "name": self._found.name,
            "brokers": [
                {"broker": place.broker, "read_queues": reads, "write_queues": writes}
                for place, reads, writes in each
            ],
            "hidden": self._hidden,
        }

    @property
    def _hidden(self) -> int:
        """Messages in queues that cannot be read then."""
        reads = {place.broker: self._counts(place)[0] for place in self._places}
        return sum(
            queue.end - queue.begin
            for queue in self._found.queues
            if queue.queue_id >= reads.get(queue.broker, queue.queue_id + 1)
        )

    def _counts(self, place: "TopicBrokerInfo") -> tuple[int, int]:
        """Queues to read and to write then."""
        reads, writes = self._settings.read_queues, self._settings.write_queues
        return (
            place.read_queues if reads is None else reads,
            place.write_queues if writes is None else writes,
        )

    def _rights(self, place: "TopicBrokerInfo") -> str:
        from roquet.admin.topics import permission_text

        asked = self._settings.permission
        if asked is None:
            return ""
        return f"; permission {place.permission}, then {permission_text(asked)}"

    def _is_hiding(self, place: "TopicBrokerInfo") -> bool:
        reads, writes = self._counts(place)
        is_same = (reads, writes) == (place.read_queues, place.write_queues)
        return not is_same and (reads < place.read_queues or reads < writes)


def resize_preview(found: "TopicInfo", count: int, broadcasting: Sequence[str]) -> Iterator[str]:
    """What a resize will do, broker by broker."""
    for place in found.places:
        yield (
            f"{place.broker}: {output.quantity(place.write_queues, 'queue')} to write and "
            f"{place.read_queues} to read, then {count}"
        )
    if not any(place.read_queues > count for place in found.places):
        return
    if left := _messages_from(found, count):
        waited = [group for group in found.groups if group not in broadcasting]
        readers = f"once {', '.join(waited)} have read" if waited else "without reader"
        yield (
            f"the queues from {count} on go {readers}; "
            f"{output.quantity(left, 'stored message')} in them can then no longer be read again"
        )
    if broadcasting:
        yield (
            f"not waited for: {', '.join(broadcasting)}; members that broadcast keep their own "
            "progress, and what one has not read of these queues it will not get"
        )


def resize_fields(found: "TopicInfo", count: int, broadcasting: Sequence[str]) -> dict[str, Any]:
    """The same for programs."""
    shrinks = any(place.read_queues > count for place in found.places)
    return {
        "name": found.name,
        "brokers": [place.broker for place in found.places],
        "queues": count,
        "messages": _messages_from(found, count) if shrinks else 0,
        "groups": found.groups,
        "not_waited_for": list(broadcasting) if shrinks else [],
    }


def delete_preview(found: "TopicInfo") -> Iterator[str]:
    """What goes with a topic."""
    yield f"{found.name} on {broker_names(found)}: {output.quantity(found.messages, 'message')}"
    if found.groups:
        yield f"groups that read it: {', '.join(found.groups)}"


def delete_fields(found: "TopicInfo") -> dict[str, Any]:
    """The same for programs."""
    return {
        "name": found.name,
        "brokers": [place.broker for place in found.places],
        "messages": found.messages,
        "groups": found.groups,
    }


def broker_names(found: "TopicInfo") -> str:
    """The brokers that have it."""
    return ", ".join(place.broker for place in found.places)


def _messages_from(found: "TopicInfo", count: int) -> int:
    """Messages in queues from an id on."""
    return sum(queue.end - queue.begin for queue in found.queues if queue.queue_id >= count)


def topic_parts(found: "TopicInfo") -> Iterator[Any]:
    """What is printed of a topic, one below the other."""
    yield f"{found.name}  {output.quantity(found.messages, 'message')}"
    if found.order_conf:
        yield f"ordered queues: {found.order_conf}"
    yield f"read by: {', '.join(found.groups) or 'nobody'}"
    places = table("broker", "read queues", "write queues", "permission", "settings")
    for place in found.places:
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
    for queue in found.queues:
        queues.add_row(
            queue.broker,
            str(queue.queue_id),
            f"{queue.begin:,}",
            f"{queue.end:,}",
            f"{queue.end - queue.begin:,}",
            output.time_text(queue.stored_ms),
        )
    yield queues
    for problem in found.problems:
        yield f"! {problem}"
