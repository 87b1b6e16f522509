"""Consistency of a group: members that disagree, queues with two owners or none.

All members of a group must have the same subscriptions and strategy, or queues are left out or read
twice. Nothing on the wire checks that, so it has to be reported.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from roquet.model.names import is_retry

T = TypeVar("T")


def members_by_value(values: Mapping[str, T | None]) -> list[tuple[T, list[str]]]:
    """Distinct values with the members that have each, the most common one first.

    Members without a known value (None) are left out. At most one entry means that all agree.
    """
    groups: list[tuple[T, list[str]]] = []
    for member in sorted(values):
        if (value := values[member]) is None:
            continue
        for known, members in groups:
            if known == value:
                members.append(member)
                break
        else:
            groups.append((value, [member]))
    return sorted(groups, key=lambda group: -len(group[1]))


def without_retry_topics(subscriptions: Mapping[str, str]) -> dict[str, str]:
    """Subscriptions without retry topics, which some clients add and others do not."""
    return {topic: text for topic, text in subscriptions.items() if not is_retry(topic)}


def unknown_members(
    members: Iterable[str], known: Mapping[str, Iterable[str]]
) -> dict[str, list[str]]:
    """Members that each broker has not heard of, although another broker has."""
    everyone = set(members)
    gaps = {broker: sorted(everyone - set(heard)) for broker, heard in known.items()}
    return {broker: members for broker, members in sorted(gaps.items()) if members}


def ownership_fault(owners: Sequence[str] | None, *, wanted: bool) -> str | None:
    """Describe what is wrong with a queue's owners; None if nothing is, or they are not known."""
    if owners is None:
        return None
    if len(owners) > 1:
        return f"{len(owners)} owners"
    return "no owner" if wanted and not owners else None
