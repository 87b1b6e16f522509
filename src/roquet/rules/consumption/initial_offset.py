"""Initial offset: the progress reported for a group that has committed nothing yet."""

from typing import Final

MEMORY_SHARE: Final = 0.4
"""Fraction of the machine's memory: records closer to the log's end count as in the page cache."""


def queried_progress(
    committed: int | None, minimum: int, *, zero_if_absent: bool, is_in_page_cache: bool
) -> int | None:
    """A group's progress in a queue as a query reports it; None means that it has none.

    A group without progress begins at 0 while the queue still holds its first message and that is
    recent: a topic that has just been created must not lose what was sent before its first consumer
    came. Any other new group gets no progress, and begins where its own settings say.
    """
    if committed is not None:
        return committed
    return 0 if zero_if_absent and minimum <= 0 and is_in_page_cache else None


def is_in_page_cache(
    position: int, end_position: int, memory: int, share: float = MEMORY_SHARE
) -> bool:
    """Whether a record is likely to be still in memory, not only on the disk."""
    return end_position - position <= memory * share
