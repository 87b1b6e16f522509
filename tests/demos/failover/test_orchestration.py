"""The demo with real processes: one fault, since each takes seconds; `make failover` has all."""

import io
from pathlib import Path

import pytest

from demos.failover.facts import checks
from demos.failover.faults import PART
from demos.failover.orchestration import DemoPace, FailoverRun
from demos.failover.timeline import BrokerState
from harness.processes import ProcessFailed
from roquet.cli.demo.facts import failed
from roquet.cli.demo.screen import Screen
from roquet.cli.terminal.printable_console import PrintableConsole

SOURCE = Path(__file__).parents[3] / "src"


@pytest.fixture(autouse=True)
def _children_find_us(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(SOURCE))


@pytest.mark.slow
async def test_a_parted_master_takes_no_message_and_another_one_goes_on(tmp_path: Path) -> None:
    terminal = io.StringIO()
    screen = Screen(PrintableConsole(file=terminal, width=80, soft_wrap=True))
    pace = DemoPace(rate=100, calm_s=0.3, fault_s=1.0)
    facts, seen = await FailoverRun(tmp_path, pace, screen, [PART]).run()
    assert failed(checks(facts)) == []
    (fault,) = facts.faults
    assert (fault.name, facts.takeovers) == ("parted", 1)
    assert [name for _, name in seen.moments] == ["parted", "healed"]
    states = {one.state for one in seen.samples if one.broker == fault.before}
    assert states == set(BrokerState), "it led, was fenced, and follows"
    shown = terminal.getvalue().splitlines()
    assert max(map(len, shown)) <= 80
    assert any("is cut off from replicas and controller" in line for line in shown)


async def test_no_process_is_left_when_a_broker_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROQUET_PERMISSION", "nonsense")
    screen = Screen(PrintableConsole(file=io.StringIO()))
    with pytest.raises(ProcessFailed, match="ROQUET_PERMISSION"):
        await FailoverRun(tmp_path, DemoPace(rate=100), screen).run()
