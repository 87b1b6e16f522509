import asyncio
import os
import signal
import threading

from roquet.client.signals import on_sigterm


async def test_all_who_asked_hear_of_it_and_the_default_is_back_afterwards() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    heard: list[int] = []
    with on_sigterm(lambda: heard.append(1)):
        with on_sigterm(lambda: heard.append(2)):
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.sleep(0.05)
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(0.05)
    assert heard == [1, 2, 1]
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


async def test_a_handler_of_the_users_own_stays() -> None:
    heard: list[str] = []
    before = signal.signal(signal.SIGTERM, lambda *_: heard.append("theirs"))
    try:
        with on_sigterm(lambda: heard.append("ours")):
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.sleep(0.05)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert heard == ["theirs"]


def test_in_other_threads_nothing_is_done() -> None:
    async def within() -> None:
        with on_sigterm(lambda: None):
            assert threading.current_thread() is not threading.main_thread()

    thread = threading.Thread(target=lambda: asyncio.run(within()))
    thread.start()
    thread.join()
