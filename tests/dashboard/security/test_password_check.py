import pytest
from msgspec.structs import replace
from tests.dashboard.conftest import SECURED, OpenSite, Site

from roquet.admin import access
from roquet.dashboard.security.password_check import LoginFailed, check_password, wrong_password
from roquet.model.errors import RoquetError
from roquet.testing.clock import in_virtual_time


async def check(it: Site, user: str, password: str) -> None:
    right = replace(it.client_config, access_key=user, secret_key=password)
    wrong = replace(right, secret_key=wrong_password())
    await check_password(it.admin, it.namesrv, user, wrong, right)


@in_virtual_time
async def test_a_broker_decides_whether_a_password_is_right(open_site: OpenSite) -> None:
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


@in_virtual_time
async def test_a_cluster_that_checks_no_signatures_lets_nobody_log_in(open_site: OpenSite) -> None:
    async with open_site() as it:
        with pytest.raises(LoginFailed, match="checks no signatures"):
            await check(it, "root", "rootsecret")


@in_virtual_time
async def test_a_cluster_that_does_not_answer_is_no_wrong_password(open_site: OpenSite) -> None:
    async with open_site(**SECURED) as it:
        for number in range(2):
            await it.running.stop_broker(number)
        with pytest.raises(RoquetError) as caught:
            await check(it, "root", "rootsecret")
        assert not isinstance(caught.value, LoginFailed)
