import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from roquet.client.connection import stop_signals
from roquet.client.connection.stop_signals import (
    MainThread,
    ProcessSignals,
    StopSignals,
    is_interactive,
    is_main_thread,
)


class FakeConsumer:
    """A consumer as signals see it, in the main thread."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.signals = StopSignals(
            lambda: self.said.append("stop"), is_main_thread, lambda: self.said.append("end")
        )

    def hear(self, number: signal.Signals) -> None:
        os.kill(os.getpid(), number)
        time.sleep(0.01)


@pytest.fixture(autouse=True)
def _defaults(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    monkeypatch.setattr(stop_signals, "PROCESS", ProcessSignals())  # no consumers of other tests
    before = {n: signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT)}
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_all_open_consumers_are_stopped_and_the_defaults_are_back_afterwards() -> None:
    one, two = FakeConsumer(), FakeConsumer()
    one.signals.open()
    two.signals.open()
    one.hear(signal.SIGTERM)
    assert one.said == two.said == ["stop", "end"]
    assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL, "a second one ends the process"
    one.signals.close()
    two.signals.close()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_handlers_that_the_program_reset_are_installed_again_by_the_next_consumer() -> None:
    one, two = FakeConsumer(), FakeConsumer()
    one.signals.open()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    two.signals.open()
    two.hear(signal.SIGTERM)
    assert one.said == two.said == ["stop", "end"]
    one.signals.close()
    two.signals.close()


def test_a_main_thread_that_reads_is_not_ended_by_force() -> None:
    consumer = FakeConsumer()
    consumer.signals.open()
    consumer.signals.note_reader()
    consumer.hear(signal.SIGTERM)
    consumer.signals.close()
    assert consumer.said == ["stop"]


def test_after_ctrl_c_the_end_of_the_messages_is_a_keyboard_interrupt() -> None:
    consumer = FakeConsumer()
    consumer.signals.open()
    consumer.signals.note_reader()
    consumer.hear(signal.SIGINT)
    consumer.signals.close()
    with pytest.raises(KeyboardInterrupt):
        consumer.signals.raise_if_interrupted()


def test_after_sigterm_one_read_gives_nothing_and_the_next_one_ends_the_program() -> None:
    consumer = FakeConsumer()
    consumer.signals.note_empty_read()
    consumer.signals.open()
    consumer.signals.note_reader()
    consumer.hear(signal.SIGTERM)
    consumer.signals.close()
    consumer.signals.raise_if_interrupted()
    consumer.signals.note_empty_read()
    with pytest.raises(SystemExit) as ended:
        consumer.signals.note_empty_read()
    assert ended.value.code == 0


def test_a_read_in_another_thread_is_cancelled() -> None:
    consumer = FakeConsumer()
    consumer.signals.open()
    consumer.hear(signal.SIGTERM)
    consumer.signals.close()
    raised: list[BaseException] = []

    def read() -> None:
        consumer.signals.note_empty_read()
        try:
            consumer.signals.note_empty_read()
        except asyncio.CancelledError as error:
            raised.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    thread.join()
    assert len(raised) == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_handler_of_the_program_stays(number: signal.Signals) -> None:
    heard: list[int] = []

    def theirs(received: int, _frame: object) -> None:
        heard.append(received)

    signal.signal(number, theirs)
    consumer = FakeConsumer()
    consumer.signals.open()
    consumer.hear(number)
    consumer.signals.close()
    assert (heard, consumer.said) == ([number], [])
    assert signal.getsignal(number) is theirs


def test_signals_are_not_handled_at_a_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = FakeConsumer()
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    assert is_interactive()
    consumer.signals.open()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_consumer_whose_loop_has_gone_leaves_the_signal_to_the_default() -> None:
    def gone() -> None:
        raise RuntimeError("Event loop is closed")

    stop_signals = StopSignals(gone, is_main_thread, lambda: None)
    stop_signals.open()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    stop_signals.close()


def test_the_end_by_a_signal_is_shown_without_a_traceback() -> None:
    consumer = FakeConsumer()
    consumer.signals.open()
    consumer.hear(signal.SIGINT)
    consumer.signals.close()
    with pytest.raises(SystemExit) as ended:
        sys.excepthook(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert ended.value.code == 130


def test_asyncios_own_signal_handler_counts_as_the_default() -> None:
    async def main() -> None:
        consumer = FakeConsumer()
        consumer.signals.open()
        consumer.hear(signal.SIGINT)
        consumer.signals.close()
        assert consumer.said == ["stop", "end"]

    asyncio.run(main())


def test_a_consumer_opened_in_a_thread_is_stopped_while_the_main_thread_waits_for_it() -> None:
    consumer = FakeConsumer()

    def use() -> None:
        consumer.signals.open()
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.1)
        consumer.signals.close()

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert consumer.said == ["stop", "end"]
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_consumer_that_a_thread_opens_while_a_signal_ends_the_program_is_stopped() -> None:
    process = stop_signals.PROCESS
    late = FakeConsumer()

    def use() -> None:
        early = FakeConsumer()
        early.signals = StopSignals(
            lambda: None, is_main_thread, process.end_main_thread, close_timeout_ms=10_000
        )
        early.signals.open()
        interrupted.wait(10)
        late.signals.open()
        late.signals.close()
        early.signals.close()

    interrupted = threading.Event()
    thread = threading.Thread(target=use)
    thread.start()
    threading.Timer(0.2, interrupted.set).start()
    time.sleep(0.1)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    thread.join()
    assert late.said == ["stop"]
    assert late.signals.number == signal.SIGINT


def test_a_consumer_opened_after_an_interrupt_that_the_program_caught_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = FakeConsumer()
    first.signals.open()
    first.hear(signal.SIGINT)
    first.signals.close()
    for _ in range(2):  # the second time in a thread, when the main thread has ended
        later = FakeConsumer()
        later.signals.open()
        later.signals.close()
        assert later.said == []
        monkeypatch.setattr(threading.main_thread(), "is_alive", lambda: False)


def test_a_consumer_that_no_signal_can_stop_says_how_one_could(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def use(done: threading.Event) -> None:
        monkeypatch.setattr(stop_signals, "MAIN_THREAD", MainThread())  # as an import here makes it
        consumer = FakeConsumer()
        consumer.signals.open()
        consumer.signals.close()
        done.set()

    done = threading.Event()
    threading.Thread(target=use, args=(done,)).start()
    assert done.wait(10)
    assert "will not stop this consumer in good order: import roquet.client in" in caplog.text
    caplog.clear()
    consumer = FakeConsumer()
    consumer.signals.open()
    consumer.signals.close()
    assert not caplog.text, "the main thread needs nobody to wake it"


@pytest.mark.parametrize(
    ("number", "error"), [(signal.SIGTERM, SystemExit), (signal.SIGINT, KeyboardInterrupt)]
)
def test_a_main_thread_that_does_not_read_is_ended(
    number: signal.Signals, error: type[BaseException]
) -> None:
    process = stop_signals.PROCESS
    here = StopSignals(lambda: None, is_main_thread, lambda: None)
    elsewhere = StopSignals(lambda: None, is_main_thread, process.end_main_thread)
    for signals in (here, elsewhere):
        signals.open()
    try:
        with pytest.raises(error):
            signal.raise_signal(number)
        here.note_reader()
        process.end_main_thread()  # the read ends by itself
    finally:
        for signals in (here, elsewhere):
            signals.close()


def test_a_forked_child_has_no_consumers_and_ends_as_it_would_without() -> None:
    consumer = FakeConsumer()
    consumer.signals.open()
    stop_signals.PROCESS.forget()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    assert consumer.said == []
    consumer.signals.close()
