from hypothesis import given
from hypothesis import strategies as st

from roquet.rules.liveness import SILENCE_MS_MAX, LastSeen, silent_peers


def test_a_broker_that_spoke_just_now_is_alive() -> None:
    assert silent_peers({"a": LastSeen(seen_ms=1000)}, 1000) == []


def test_two_minutes_of_silence_are_still_allowed_and_one_millisecond_more_is_not() -> None:
    signs = {"a": LastSeen(seen_ms=0)}
    assert silent_peers(signs, SILENCE_MS_MAX) == []
    assert silent_peers(signs, SILENCE_MS_MAX + 1) == ["a"]


def test_each_may_set_its_own_limit() -> None:
    signs = {
        "slow": LastSeen(seen_ms=0, limit_ms=10_000),
        "quick": LastSeen(seen_ms=0, limit_ms=1000),
    }
    assert silent_peers(signs, 5000) == ["quick"]


@given(st.dictionaries(st.text(), st.integers(0, 10**6)), st.integers(0, 10**6))
def test_the_silent_and_the_living_are_all(seen: dict[str, int], now_ms: int) -> None:
    signs = {key: LastSeen(seen_ms=ms, limit_ms=1000) for key, ms in seen.items()}
    gone = set(silent_peers(signs, now_ms))
    assert {key for key in signs if not signs[key].expired(now_ms)} == signs.keys() - gone
