from roquet.rules.topic_id import adopted, created, created_ms, is_another


def test_two_topics_of_one_name_and_one_millisecond_have_different_ids() -> None:
    assert created(1_763_836_680_000, 17) == "1763836680000-17"
    assert is_another(created(1_763_836_680_000, 17), created(1_763_836_680_000, 19))


def test_a_topic_is_itself() -> None:
    assert not is_another("1763836680000-17", "1763836680000-17")


def test_where_one_side_knows_no_id_nothing_is_certain() -> None:
    assert not is_another(None, "1763836680000-17")
    assert not is_another("1763836680000-17", None)
    assert not is_another(None, None)


def test_an_id_that_was_adopted_later_accuses_nobody() -> None:
    """A broker that knows no ids may have dropped the one before."""
    assert not is_another(created(1, 1), adopted(2, 5))
    assert not is_another(adopted(1, 1), adopted(2, 5))


def test_a_topic_made_after_an_adopted_one_is_another() -> None:
    assert is_another(adopted(1, 1), created(2, 5))


def test_an_id_tells_when_its_topic_was_made() -> None:
    assert created_ms(created(1_763_836_680_000, 17)) == 1_763_836_680_000
    assert created_ms(adopted(1_763_836_680_000, 17)) is None
