"""Which event loop runs us."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from roquet.model.errors import ConnectFailed, UsageError
from roquet.net import loop
from roquet.net.loop import CURRENT_PROCESS
from roquet.net.pool import ChannelPool
from roquet.net.router import Router
from roquet.net.server import Server
from roquet.wire.calls.route import GetKV, GetRoute


async def kind() -> str:
    return type(asyncio.get_running_loop()).__module__


@pytest.mark.skipif(sys.platform == "win32", reason="uvloop does not run there")
def test_uvloop_runs_us_where_there_is_one() -> None:
    assert loop.run(kind()).startswith("uvloop")


def test_asyncios_own_loop_serves_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "new_event_loop", asyncio.new_event_loop)
    assert loop.run(kind()).startswith("asyncio")


@pytest.mark.parametrize(
    "kind", [loop.new_event_loop, asyncio.new_event_loop], ids=["ours", "asyncio"]
)
def test_a_conversation_goes_the_same_way_on_either(
    router: Router, kind: Callable[[], asyncio.AbstractEventLoop], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "new_event_loop", kind)

    async def scene() -> list[str]:
        async with ChannelPool() as pool:
            async with Server(router, host="127.0.0.1") as server:
                address = f"127.0.0.1:{server.port}"
                slow = asyncio.create_task(pool.call(address, GetRoute(topic="100")))
                keys = [GetKV(namespace="echo", key=str(i)) for i in range(200)]
                replies = await asyncio.gather(*(pool.call(address, key) for key in keys))
            assert (await slow).body == b"100"
            with pytest.raises(ConnectFailed):
                await pool.call(address, keys[0])
        return [reply.value or "" for reply in replies]

    assert loop.run(scene()) == [str(i) for i in range(200)]


async def checked(own: loop.OwnLoop) -> None:
    own.check()


def test_what_belongs_to_a_loop_knows_it_in_another_thread_too_and_beside_a_second_loop() -> None:
    own, first, second = loop.OwnLoop(), asyncio.new_event_loop(), asyncio.new_event_loop()
    first.run_until_complete(checked(own))
    with ThreadPoolExecutor(1) as thread:
        thread.submit(first.run_until_complete, checked(own)).result()
        running = thread.submit(first.run_forever)
        while not first.is_running():
            time.sleep(0.001)
        with pytest.raises(UsageError, match="belongs to another event loop: make"):
            own.check()  # in the thread where the loop ran before
        first.call_soon_threadsafe(first.stop)
        running.result()
    first.run_until_complete(checked(own))
    with pytest.raises(UsageError, match="belongs to another event loop: make"):
        second.run_until_complete(checked(own))
    first.close()
    with pytest.raises(UsageError, match="belongs to another event loop, which is closed"):
        second.run_until_complete(checked(own))
    second.close()


FORK = """
import os
from roquet.net.loop import CURRENT_PROCESS

child = os.fork()
if not child:
    os._exit(0 if os.getpid() == CURRENT_PROCESS.pid else 1)
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_the_process_id_is_that_of_this_process() -> None:
    assert os.getpid() == CURRENT_PROCESS.pid


def test_a_forked_child_knows_its_own_process_id() -> None:
    subprocess.run([sys.executable, "-c", FORK], check=True)  # of one thread, so it may fork


WITHOUT_FORK = """
import os
del os.register_at_fork
import roquet.net.loop
"""


def test_the_module_is_imported_where_no_process_forks() -> None:
    """As on Windows."""
    subprocess.run([sys.executable, "-c", WITHOUT_FORK], check=True)
