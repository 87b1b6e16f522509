from hypothesis import given
from hypothesis import strategies as st

from roquet.metrics.counts import OTHER, Histogram, LabeledHistograms, LabeledTallies


def test_a_value_that_equals_a_bound_is_counted_below_it() -> None:
    sizes = Histogram((10, 20))
    for value in (10, 11, 20, 21):
        sizes.observe(value)
    assert (sizes.counts, sizes.sum, sizes.count) == ([1, 2, 1], 62, 4)


@given(st.lists(st.integers(0, 100)), st.lists(st.integers(0, 100), min_size=1, unique=True))
def test_each_value_is_in_the_first_bucket_that_is_large_enough(
    values: list[int], bounds: list[int]
) -> None:
    bounds.sort()
    sizes = Histogram(bounds)
    for value in values:
        sizes.observe(value)
    repeated = Histogram(bounds)
    for value in set(values):
        repeated.observe_equal(value, values.count(value))
    assert (repeated.counts, repeated.sum) == (sizes.counts, sizes.sum)
    up_to = [sum(value <= bound for value in values) for bound in bounds]
    assert [sum(sizes.counts[: n + 1]) for n in range(len(bounds))] == up_to
    assert (sizes.count, sizes.sum) == (len(values), sum(values))


def test_combinations_of_labels_are_counted_apart() -> None:
    counts = LabeledTallies(2)
    counts.add("a", "x")
    counts.add("a", "y", count=3)
    counts.add("a", "x")
    assert {labels: tally.value for labels, tally in counts.items()} == {
        ("a", "x"): 2,
        ("a", "y"): 3,
    }


def test_combinations_beyond_the_limit_are_counted_together() -> None:
    counts = LabeledTallies(1, series_max=2)
    for name in ("a", "b", "c", "d", "a", "c"):
        counts.add(name)
    assert {labels: tally.value for labels, tally in counts.items()} == {
        ("a",): 2,
        ("b",): 1,
        (OTHER,): 3,
    }
    assert counts.overflow == 3


def test_a_topic_that_is_called_other_shares_the_series_of_all_others() -> None:
    counts = LabeledTallies(1, series_max=1)
    counts.add(OTHER)
    counts.add("b")
    assert [(labels, tally.value) for labels, tally in counts.items()] == [((OTHER,), 2)]


def test_a_deleted_topic_is_counted_no_more() -> None:
    sizes = LabeledHistograms((1,), 1)
    sizes.observe("gone", value=1)
    sizes.observe("stays", value=2)
    sizes.forget(lambda labels: labels == ("gone",))
    assert [labels for labels, _ in sizes.items()] == [("stays",)]


def test_counts_may_grow_while_they_are_shown() -> None:
    counts = LabeledTallies(1)
    counts.add("a")
    for _ in counts.items():
        counts.add("b")
    assert len(list(counts.items())) == 2
