import pytest
from tests.controller.conftest import broker, controller

from roquet.model.errors import CallRefused
from roquet.testing.clock import in_virtual_time
from roquet.wire.calls.controller import GetControllerSettings, UpdateControllerSettings
from roquet.wire.properties_file import read_unescaped


@in_virtual_time
async def test_settings_are_shown_and_changed() -> None:
    async with controller() as server, broker(1) as one:
        await one.channel.call(UpdateControllerSettings(body=b"enableElectUncleanMaster=true\n"))
        assert server.controller.elections.elects_unclean
        reply = await one.channel.call(GetControllerSettings())
        shown = read_unescaped(reply.body.decode())
        assert shown["enableElectUncleanMaster"] == "true"
        assert shown["listenPort"] == "9878"
        assert shown["configBlackList"] == "configBlackList;configStorePath;rocketmqHome"


@pytest.mark.parametrize(
    ("body", "code", "text"),
    [
        (b"rocketmqHome=/etc", 16, "black list"),
        (b"listenPort=1", 1, "read at the start"),
        (b"enableElectUncleanMaster=perhaps", 1, "neither true nor false"),
        (b"\xff", 1, "string2Properties error"),
        (b"a=\\u12", 1, "string2Properties error"),
    ],
)
@in_virtual_time
async def test_a_change_that_cannot_be_made_is_refused(body: bytes, code: int, text: str) -> None:
    async with controller() as server, broker(1) as one:
        before = server.controller.config
        with pytest.raises(CallRefused, match=text) as refused:
            await one.channel.call(UpdateControllerSettings(body=body))
        assert refused.value.code == code
        assert server.controller.config == before
