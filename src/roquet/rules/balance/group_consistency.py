"""What is amiss in a group: members that want different things, queues with two owners or none.

All members of a group must listen to the same and use one strategy, or queues are left out, or
read twice: nobody on the wire checks that, so it has to be seen.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from roquet.model.names import is_retry

T = TypeVar("T")


def members_by_value(wishes: Mapping[str, T | None]) -> list[tuple[T, list[str]]]:
    """Who wants what: each different wish, and its members, the most common one first.

    Members of whom nothing is known (None) are left out. One faction or none: all is well.
    """
    found: list[tuple[T, list[str]]] = []
    for member in sorted(wishes):
        if (wish := wishes[member]) is None:
            continue
        for known, members in found:
            if known == wish:
                members.append(member)
                break
        else:
            found.append((wish, [member]))
    return sorted(found, key=lambda faction: -len(faction[1]))


def without_retry_topics(wishes: Mapping[str, str]) -> dict[str, str]:
    """What a member listens to by its own will: clients add the retry topic, or do not."""
    return {topic: wish for topic, wish in wishes.items() if not is_retry(topic)}


def unknown_members(
    members: Iterable[str], known: Mapping[str, Iterable[str]]
) -> dict[str, list[str]]:
    """Which members each broker has not heard of, though others have."""
    everyone = set(members)
    gaps = {broker: sorted(everyone - set(heard)) for broker, heard in known.items()}
    return {broker: members for broker, members in sorted(gaps.items()) if members}


def ownership_fault(owners: Sequence[str] | None, *, wanted: bool) -> str | None:
    """What is wrong with a queue's owners; None when nothing is, or they are not known."""
    if owners is None:
        return None
    if len(owners) > 1:
        return f"{len(owners)} owners"
    return "no owner" if wanted and not owners else None
