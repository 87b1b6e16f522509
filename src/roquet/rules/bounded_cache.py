"""Bounded cache: the most recently used values, up to a number of them and a total weight."""

from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class BoundedCache(Generic[K, V]):
    """Least recently used (LRU) values are dropped beyond the bounds, the last one put never.

    `functools.lru_cache` serves where a value follows from its key by a plain function; this class
    where a coroutine computes it, where it changes, or where values differ in size.
    """

    __slots__ = ("_count_max", "_entries", "_weight_max", "weight")

    def __init__(self, count_max: int, weight_max: int | None = None) -> None:
        """`weight_max` is in the unit of the weights that are put; None is no bound."""
        self._count_max = count_max
        self._weight_max = weight_max
        self._entries: dict[K, tuple[V, int]] = {}
        """Values and weights, the least recently used first."""
        self.weight = 0
        """Sum of the weights of all values."""

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: K) -> bool:
        return key in self._entries

    def get(self, key: K) -> V | None:
        """The value of a key, which becomes the most recently used; None without one."""
        entry = self._entries.pop(key, None)
        if entry is None:
            return None
        self._entries[key] = entry
        return entry[0]

    def put(self, key: K, value: V, weight: int = 0) -> None:
        """Set the value of a key, which becomes the most recently used, and drop others."""
        before = self._entries.pop(key, None)
        self._entries[key] = value, weight
        self.weight += weight - (0 if before is None else before[1])
        while len(self._entries) > 1 and self._is_over():
            _, dropped = self._entries.pop(next(iter(self._entries)))
            self.weight -= dropped

    def _is_over(self) -> bool:
        if len(self._entries) > self._count_max:
            return True
        return self._weight_max is not None and self.weight > self._weight_max
