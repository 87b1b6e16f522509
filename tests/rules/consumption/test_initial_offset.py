from roquet.rules.consumption.initial_offset import is_in_page_cache, queried_progress


def test_committed_progress_is_reported_whatever_the_queue_holds() -> None:
    assert queried_progress(7, 100, zero_if_absent=True, is_in_page_cache=False) == 7


def test_a_group_without_progress_starts_a_recent_whole_queue_at_its_first_message() -> None:
    assert queried_progress(None, 0, zero_if_absent=True, is_in_page_cache=True) == 0


def test_a_group_without_progress_has_none_in_an_old_queue() -> None:
    assert queried_progress(None, 0, zero_if_absent=True, is_in_page_cache=False) is None
    assert queried_progress(None, 5, zero_if_absent=True, is_in_page_cache=True) is None


def test_a_client_may_ask_not_to_be_given_a_zero() -> None:
    assert queried_progress(None, 0, zero_if_absent=False, is_in_page_cache=True) is None


def test_the_end_of_the_log_is_recent() -> None:
    assert is_in_page_cache(1_000, 1_400, 1_000)
    assert not is_in_page_cache(1_000, 1_401, 1_000)
