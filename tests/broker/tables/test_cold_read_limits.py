import pytest

from roquet.broker.tables.cold_read_limits import GROUPS_MAX, ColdReadLimits
from roquet.model.errors import UsageError


def test_a_limit_is_kept_until_it_is_removed() -> None:
    limits = ColdReadLimits()
    limits.put({"g": 1, "h": 2})
    limits.put({"g": 3})
    limits.remove("h")
    limits.remove("nobody")
    assert limits.by_group == {"g": 3}


def test_limits_of_too_many_groups_are_refused_all_together() -> None:
    limits = ColdReadLimits()
    limits.put({f"g{n}": n for n in range(GROUPS_MAX)})
    with pytest.raises(UsageError, match="remove some first"):
        limits.put({"one more": 1, "g0": 7})
    limits.put({"g0": 8})
    assert (len(limits.by_group), limits.by_group["g0"]) == (GROUPS_MAX, 8)
