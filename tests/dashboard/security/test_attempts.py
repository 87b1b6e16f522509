from roquet.dashboard.security.attempts import (
    ADDRESS_MAX,
    EACH_MAX,
    PERIOD_MS,
    TOTAL_MAX,
    LoginAttempts,
)


def test_somebody_waits_after_some_failures_and_others_do_not() -> None:
    attempts = LoginAttempts()
    for _ in range(EACH_MAX):
        assert attempts.wait_ms("a", "host", PERIOD_MS) == 0
        attempts.begin("a", "host", PERIOD_MS)
    assert attempts.wait_ms("a", "host", PERIOD_MS + 1) == PERIOD_MS - 1
    assert attempts.wait_ms("b", "host", PERIOD_MS + 1) == 0
    assert attempts.wait_ms("a", "other", PERIOD_MS + 1) == 0
    assert attempts.wait_ms("a", "host", 2 * PERIOD_MS) == 0


def test_a_login_forgives_the_failures_before_it() -> None:
    attempts = LoginAttempts()
    for _ in range(EACH_MAX):
        attempts.begin("a", "host", 0)
    attempts.succeed("a", "host")
    assert attempts.wait_ms("a", "host", 0) == 0


def test_one_address_cannot_keep_everybody_out() -> None:
    attempts = LoginAttempts()
    for number in range(ADDRESS_MAX):
        attempts.begin(f"{number}", "host", 0)
    assert attempts.wait_ms("another", "host", 0) == PERIOD_MS
    assert attempts.wait_ms("another", "other", 0) == 0


def test_behind_a_proxy_everybody_has_one_address() -> None:
    attempts = LoginAttempts(TOTAL_MAX)
    for number in range(ADDRESS_MAX):
        attempts.begin(f"{number}", "proxy", 0)
    assert attempts.wait_ms("another", "proxy", 0) == 0


def test_many_together_have_a_limit_as_well() -> None:
    attempts = LoginAttempts()
    for number in range(TOTAL_MAX):
        attempts.begin("a", f"host{number}", 0)
    assert attempts.wait_ms("another", "other", 0) == PERIOD_MS
