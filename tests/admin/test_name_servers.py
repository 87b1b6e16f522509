import pytest

from roquet.admin import name_servers
from roquet.admin.client import AdminClient
from roquet.client.config import ClientConfig
from roquet.model.errors import CallRefused, RoquetError
from roquet.testing.clock import this_loop
from roquet.testing.cluster import cluster

pytestmark = pytest.mark.virtual_time


async def test_settings_are_changed_at_every_name_server() -> None:
    clock = this_loop().clock
    async with (
        cluster(namesrvs=2, clock=clock) as running,
        AdminClient(running.namesrv_addr, ClientConfig(clock=clock)) as admin,
    ):
        changed = await name_servers.configure(admin, {"orderMessageEnable": "true"})
        assert changed == running.namesrv_addr.split(";")
        found, failed = await name_servers.settings(admin)
        assert [values["orderMessageEnable"] for values in found.values()] == ["true", "true"]
        assert not failed
        with pytest.raises(CallRefused, match="in black list"):
            await name_servers.configure(admin, {"kvConfigPath": "/tmp/x"})


async def test_a_name_server_that_does_not_answer_is_named() -> None:
    clock = this_loop().clock
    async with cluster(clock=clock) as running:
        servers = f"{running.namesrv_addr};127.0.0.1:1"
        async with AdminClient(servers, ClientConfig(clock=clock)) as admin:
            with pytest.raises(RoquetError, match=r"changed at .*, but not everywhere: 127.0.0.1"):
                await name_servers.configure(admin, {"orderMessageEnable": "true"})
            found, failed = await name_servers.settings(admin)
            assert (list(found), list(failed)) == ([running.namesrv_addr], ["127.0.0.1:1"])
