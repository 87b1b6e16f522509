"""A broker's id: applied for once, and resumed after a crash at any step."""

from pathlib import Path
from random import Random

import pytest
from tests.broker.replication.scripted_controller import MEMBER, ScriptedController, client_of

from roquet.broker.replication.control.broker_id import TRIES_MAX, known_id, obtain_id, register
from roquet.model.errors import CallRefused, ConfigError, StoreError
from roquet.store.filesystem.memory_files import MemoryFiles
from roquet.store.replication.identity_file import BrokerIdentity, IdentityFile
from roquet.testing.clock import START_MS, this_loop
from roquet.wire.calls import controller as calls
from roquet.wire.codes import ResponseCode

pytestmark = pytest.mark.virtual_time

PATH = Path("/data/brokerIdentity")
TEMP = Path("/data/brokerIdentity-temp")
CODE = f"10.0.0.1:10911;{START_MS}"

TAKEN = CallRefused(ResponseCode.CONTROLLER_BROKER_ID_INVALID, "taken")


async def obtain(controller: ScriptedController, file: IdentityFile) -> int:
    return await obtain_id(file, client_of(controller), MEMBER, this_loop().clock, Random(1))


async def test_a_new_broker_notes_its_application_before_it_is_made() -> None:
    files = MemoryFiles()
    controller = ScriptedController()
    noted: list[bytes] = []

    def apply(_call: calls.ApplyBrokerId) -> calls.ApplyBrokerIdReply:
        noted.append(files.read(TEMP))
        return calls.ApplyBrokerIdReply()

    controller.next_id = 3
    controller.replies[calls.ApplyBrokerId] = apply
    async with controller.server:
        assert await obtain(controller, IdentityFile(PATH, files)) == 3
    assert noted == [f"c#g#3#{CODE}".encode()]
    assert files.read(PATH) == b"c#g#3"
    assert TEMP not in files.contents


async def test_a_known_id_is_not_applied_for() -> None:
    files = MemoryFiles()
    file = IdentityFile(PATH, files)
    file.save(BrokerIdentity(cluster="c", broker_name="g", broker_id=2))
    controller = ScriptedController()
    async with controller.server:
        assert await obtain(controller, file) == 2
    assert controller.asked == []


async def test_an_application_is_repeated_with_its_own_code_after_a_crash() -> None:
    files = MemoryFiles()
    file = IdentityFile(PATH, files)
    begun = BrokerIdentity(cluster="c", broker_name="g", broker_id=2, check_code="a:1;5")
    file.application().save(begun)
    controller = ScriptedController()
    async with controller.server:
        assert await obtain(controller, file) == 2
    (applied,) = controller.of(calls.ApplyBrokerId)
    assert (applied.applied_broker_id, applied.register_check_code) == (2, "a:1;5")
    assert controller.count(calls.GetNextBrokerId) == 0
    assert file.application().load() is None


async def test_an_id_that_another_broker_was_given_is_followed_by_the_next_one() -> None:
    files = MemoryFiles()
    controller = ScriptedController()

    def apply(call: calls.ApplyBrokerId) -> calls.ApplyBrokerIdReply:
        if call.applied_broker_id == 1:
            controller.next_id = 2
            raise TAKEN
        return calls.ApplyBrokerIdReply()

    controller.replies[calls.ApplyBrokerId] = apply
    async with controller.server:
        assert await obtain(controller, IdentityFile(PATH, files)) == 2
    assert files.read(PATH) == b"c#g#2"


async def test_ids_are_not_tried_for_ever() -> None:
    controller = ScriptedController()
    controller.refusals[calls.ApplyBrokerId] = TAKEN
    async with controller.server:
        with pytest.raises(CallRefused, match="taken"):
            await obtain(controller, IdentityFile(PATH, MemoryFiles()))
    assert controller.count(calls.ApplyBrokerId) == TRIES_MAX


async def test_another_refusal_is_not_tried_again_at_once() -> None:
    controller = ScriptedController()
    controller.refusals[calls.ApplyBrokerId] = CallRefused(1, "the store is away")
    async with controller.server:
        with pytest.raises(CallRefused, match="the store is away"):
            await obtain(controller, IdentityFile(PATH, MemoryFiles()))
    assert controller.count(calls.ApplyBrokerId) == 1


@pytest.mark.parametrize("name", ["brokerIdentity", "brokerIdentity-temp"])
@pytest.mark.parametrize("text", ["other#g#1", "c#other#1"])
def test_the_identity_of_another_group_is_refused(name: str, text: str) -> None:
    files = MemoryFiles()
    content = text if name == "brokerIdentity" else f"{text}#a:1;5"
    files.replace(Path("/data") / name, content.encode())
    with pytest.raises(ConfigError, match=r"belongs to broker 1 of .* not to g in c"):
        known_id(IdentityFile(PATH, files), "c", "g")


def test_a_damaged_identity_is_refused() -> None:
    files = MemoryFiles()
    files.replace(PATH, b"c#g")
    with pytest.raises(StoreError, match="brokerIdentity cannot be read"):
        known_id(IdentityFile(PATH, files), "c", "g")


async def test_a_controller_that_forgot_the_id_gives_it_again() -> None:
    controller = ScriptedController()
    known: list[int] = []

    def told(_call: calls.RegisterWithController) -> calls.RegisterWithControllerReply:
        if not known:
            raise CallRefused(ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED)
        return calls.RegisterWithControllerReply()

    def apply(call: calls.ApplyBrokerId) -> calls.ApplyBrokerIdReply:
        known.append(call.applied_broker_id)
        return calls.ApplyBrokerIdReply()

    controller.replies[calls.RegisterWithController] = told
    controller.replies[calls.ApplyBrokerId] = apply
    async with controller.server:
        await register(2, client_of(controller), MEMBER, this_loop().clock)
    assert known == [2]


async def test_a_registration_that_is_refused_for_another_reason_fails() -> None:
    controller = ScriptedController()
    controller.refusals[calls.RegisterWithController] = CallRefused(1, "no")
    async with controller.server:
        with pytest.raises(CallRefused, match="no"):
            await register(2, client_of(controller), MEMBER, this_loop().clock)
