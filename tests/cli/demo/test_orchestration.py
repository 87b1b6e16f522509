import io
from pathlib import Path

import pytest
from rich.console import Console

from roquet.cli.demo import flights
from roquet.cli.demo.facts import TableFacts, checks, failed
from roquet.cli.demo.orchestration import DemoRun
from roquet.cli.demo.screen import Screen
from roquet.cli.process.child_processes import ChildProcessFailed

SOURCE = Path(__file__).parents[3] / "src"
COUNT = 300


class WithoutSpark(DemoRun):
    """The whole demo but for the table, which has a test of its own."""

    async def _start_spark(self) -> None:
        pass

    async def _to_the_table(self) -> TableFacts:
        return TableFacts(rows=COUNT, distinct=COUNT, gaps=0, disordered=0)


@pytest.fixture(autouse=True)
def _children_find_us(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(SOURCE))


@pytest.mark.slow
async def test_every_flight_is_sent_stored_and_handled_though_members_come_and_go(
    tmp_path: Path,
) -> None:
    terminal = io.StringIO()
    stage = WithoutSpark(tmp_path, COUNT, Screen(Console(file=terminal, width=120)))
    facts, journey = await stage.run()
    assert failed(checks(facts)) == []
    assert [name for _, name in journey.moments] == ["consumer-3 joins", "consumer-1 is killed"]
    assert set(journey.books) == {"consumer-1", "consumer-2", "consumer-3"} == set(journey.ends_ms)
    assert len(journey.sent_ms) == COUNT
    shown = terminal.getvalue()
    for words in ("two consumers share", "a third consumer has joined", "was killed (SIGKILL)"):
        assert words in shown


@pytest.mark.slow
async def test_no_child_is_left_when_the_demo_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROQUET_PERMISSION", "nonsense")  # brokers will not start
    stage = WithoutSpark(tmp_path, COUNT, Screen(Console(file=io.StringIO())))
    with pytest.raises(ChildProcessFailed, match="ROQUET_PERMISSION"):
        await stage.run()


async def test_an_error_is_reported_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flights, "archive_path", lambda: tmp_path / "gone.zip")
    stage = WithoutSpark(tmp_path, COUNT, Screen(Console(file=io.StringIO())))
    with pytest.raises(FileNotFoundError, match=r"gone\.zip"):
        await stage.run()
