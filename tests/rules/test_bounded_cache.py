from hypothesis import given
from hypothesis import strategies as st

from roquet.rules.bounded_cache import BoundedCache

Step = tuple[bool, int, int]
"""Whether a value is put, its key, and its weight."""

steps = st.lists(st.tuples(st.booleans(), st.integers(0, 5), st.integers(0, 9)), max_size=40)


def test_the_least_recently_used_value_is_dropped_first() -> None:
    cache: BoundedCache[str, int] = BoundedCache(2)
    cache.put("a", 1)
    cache.put("b", 2)
    assert cache.get("a") == 1
    cache.put("c", 3)
    assert [cache.get(key) for key in "abc"] == [1, None, 3]
    assert (len(cache), "a" in cache, "b" in cache) == (2, True, False)


def test_a_heavy_value_drops_others_but_stays_itself() -> None:
    cache: BoundedCache[str, str] = BoundedCache(9, weight_max=10)
    cache.put("a", "small", 4)
    cache.put("b", "small", 4)
    cache.put("c", "huge", 99)
    assert (len(cache), cache.get("c"), cache.weight) == (1, "huge", 99)
    cache.put("d", "small", 4)
    assert (cache.get("c"), cache.get("d"), cache.weight) == (None, "small", 4)


def test_a_value_may_change_with_its_weight() -> None:
    cache: BoundedCache[str, str] = BoundedCache(9, weight_max=10)
    cache.put("a", "short", 1)
    cache.put("b", "other", 5)
    cache.put("a", "longer", 6)
    assert (cache.get("a"), cache.get("b"), cache.weight) == ("longer", None, 6)


@given(steps, st.integers(1, 4), st.none() | st.integers(0, 20))
def test_a_cache_is_a_list_ordered_by_use_that_is_cut(
    steps: list[Step], count_max: int, weight_max: int | None
) -> None:
    cache: BoundedCache[int, int] = BoundedCache(count_max, weight_max)
    model: list[tuple[int, int, int]] = []
    for value, (is_put, key, weight) in enumerate(steps):
        known = next((entry for entry in model if entry[0] == key), None)
        rest = [entry for entry in model if entry[0] != key]
        if is_put:
            cache.put(key, value, weight)
            model = [*rest, (key, value, weight)]
        else:
            assert cache.get(key) == (known[1] if known else None)
            model = [*rest, known] if known else rest
        while len(model) > count_max or (
            weight_max is not None and len(model) > 1 and sum(w for *_, w in model) > weight_max
        ):
            model.pop(0)
        assert cache.weight == sum(weight for *_, weight in model)
        assert len(cache) == len(model)
        assert all(key in cache for key, *_ in model)
