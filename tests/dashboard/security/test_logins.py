import pytest
from msgspec.structs import replace
from tests.dashboard.conftest import SECURED, Site, open_site

from roquet.admin import access
from roquet.dashboard.security.logins import (
    ADDRESS_MAX,
    EACH_MAX,
    PERIOD_MS,
    TOTAL_MAX,
    LoginAttempts,
    LoginFailed,
    check_password,
    wrong_password,
)
from roquet.model.errors import RoquetError

pytestmark = pytest.mark.virtual_time


async def check(it: Site, user: str, password: str) -> None:
    right = replace(it.client_config, access_key=user, secret_key=password)
    wrong = replace(right, secret_key=wrong_password())
    await check_password(it.admin, it.namesrv, user, wrong, right)


async def test_a_broker_decides_whether_a_password_is_right() -> None:
    async with open_site(**SECURED) as it:
        call = access.user_call(
            "alice", create=True, password="alicesecret", user_type=None, status=None
        )
        await access.change(it.admin, await access.every_broker(it.admin), call)
        await check(it, "root", "rootsecret")
        await check(it, "alice", "alicesecret")  # she may not even look at herself
        for user, password in [("root", "x"), ("alice", "rootsecret"), ("nobody", "rootsecret")]:
            with pytest.raises(LoginFailed, match="does not know this user"):
                await check(it, user, password)


async def test_a_cluster_that_checks_no_signatures_lets_nobody_log_in(site: Site) -> None:
    with pytest.raises(LoginFailed, match="checks no signatures"):
        await check(site, "root", "rootsecret")


async def test_a_cluster_that_does_not_answer_is_no_wrong_password() -> None:
    async with open_site(**SECURED) as it:
        for number in range(2):
            await it.running.stop_broker(number)
        with pytest.raises(RoquetError) as caught:
            await check(it, "root", "rootsecret")
        assert not isinstance(caught.value, LoginFailed)


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
