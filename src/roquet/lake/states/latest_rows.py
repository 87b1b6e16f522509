"""Latest rows: of the changes of each key the one that counts. Pure.

Within a queue the higher offset is later, whatever the clocks say. Between queues the change with
the later `stored_at` counts, and of two with one time that of the last queue by (broker, queue id).
A key that always goes to one queue, as an order key makes it, depends on offsets alone.
"""

from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Numbers = NDArray[np.int64]


class LatestRows(NamedTuple):
    """The result of a merge: a row for each key."""

    rows: pa.Table
    moved: int
    """Keys with changes in more than one queue."""


def latest_by_queue(changes: pa.Table) -> pa.Table:
    """The last change of each key in each queue; keys must not be null."""
    return changes.take(_last_by_queue(_keys(changes), _queues(changes), changes))


def latest_by_key(changes: pa.Table) -> LatestRows:
    """The last change of each key; keys must not be null."""
    keys, queues = _keys(changes), _queues(changes)
    places = _last_by_queue(keys, queues, changes)
    keys, queues = keys[places], queues[places]
    stored = _numbers(changes["stored_at"])[places]
    order = np.lexsort((queues, stored, keys))
    is_last = _is_last(keys[order])
    latest = places[order[is_last]]
    moved = np.count_nonzero(np.diff(np.flatnonzero(is_last), prepend=-1) > 1)
    return LatestRows(changes.take(latest), int(moved))


def _last_by_queue(keys: Numbers, queues: Numbers, changes: pa.Table) -> Numbers:
    """The indexes of the rows with the highest offset of their key and queue."""
    order = np.lexsort((_numbers(changes["queue_offset"]), queues, keys))
    last: Numbers = order[_is_last(keys[order], queues[order])]
    return last


def _is_last(*groups: Numbers) -> NDArray[np.bool_]:
    """Whether each row of sorted groups is the last of its group."""
    is_last = np.ones(len(groups[0]), np.bool_)
    if len(is_last):
        is_last[:-1] = np.logical_or.reduce([group[1:] != group[:-1] for group in groups])
    return is_last


def _keys(changes: pa.Table) -> Numbers:
    codes: Numbers = _dictionary(changes["key"]).indices.to_numpy(zero_copy_only=False)
    return codes.astype(np.int64)


def _queues(changes: pa.Table) -> Numbers:
    """A number for each queue, in the order of (broker, queue id)."""
    brokers = _dictionary(changes["broker"])
    names = brokers.dictionary.to_pylist()
    ranks = np.empty(len(names), np.int64)
    ranks[sorted(range(len(names)), key=names.__getitem__)] = np.arange(len(names))
    queue_ids = _numbers(changes["queue_id"])
    codes = brokers.indices.to_numpy(zero_copy_only=False)
    numbers: Numbers = ranks[codes] * (int(queue_ids.max(initial=0)) + 1) + queue_ids
    return numbers


def _dictionary(column: pa.ChunkedArray) -> pa.DictionaryArray:
    return column.combine_chunks().dictionary_encode()


def _numbers(column: pa.ChunkedArray) -> Numbers:
    """Numbers or times as integers; 0 for null."""
    whole: Numbers = column.combine_chunks().cast(pa.int64()).fill_null(0).to_numpy()
    return whole
