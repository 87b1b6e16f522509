"""python -m simulation: one line where all is well, each fault where it is not."""

import json
import re

import pytest
from typer.testing import CliRunner

from simulation.command import app, main

run = CliRunner().invoke


def test_one_seed_is_reported_in_one_line() -> None:
    result = run(app, ["--seeds", "1", "--first", "2"])
    assert result.exit_code == 0
    assert result.stdout.startswith("1 seed, ")
    assert "no faults" in result.stdout
    assert re.search(r" handlings in \d+ s \(\d+ s of CPU\): ", result.stdout)


def test_a_replicated_group_lives_through_as_many_faults_as_are_wanted() -> None:
    kind = ["--scenario", "replicated", "--seeds", "1", "--first", "1"]
    result = run(app, [*kind, "--faults", "2", "--trace"])
    assert result.exit_code == 0
    assert result.stdout.count("PlannedFault(") == 2


def test_only_replicated_groups_have_a_number_of_faults() -> None:
    wrong = run(app, ["--faults", "2", "--seeds", "3"])
    assert "add --scenario replicated" in str(wrong.exception)


def test_a_trace_shows_every_line_and_repeats() -> None:
    command = ["--seeds", "1", "--first", "4", "--trace"]
    first, again = (run(app, command).stdout.splitlines() for _ in range(2))
    assert any("holds flights/broker-1/0" in line for line in first)
    assert again[:-1] == first[:-1]  # the last one says how long it took


def test_a_planted_bug_ends_with_its_faults_and_exit_code_1() -> None:
    result = run(app, ["--seeds", "1", "--defect", "lost-notice"])
    assert result.exit_code == 1
    assert "balance seed 0: " in result.stdout
    assert "1 seed with faults" in result.stdout


@pytest.mark.slow
def test_several_seeds_share_processes_and_come_in_order() -> None:
    result = run(app, ["--seeds", "3", "--jobs", "2", "--json"])
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    shared = [("balance", 0), ("day", 0), ("replicated", 0)]  # the kinds share the number
    assert [(line["scenario"], line["seed"]) for line in lines] == shared


def test_one_kind_alone_is_simulated_when_it_is_named() -> None:
    result = run(app, ["--scenario", "day", "--first", "12", "--seeds", "1", "--trace"])
    assert result.exit_code == 0
    assert "in a transaction" in result.stdout


def test_an_unknown_kind_is_answered_with_the_nearest() -> None:
    wrong = run(app, ["--scenario", "balanse"])
    assert "did you mean 'balance'" in str(wrong.exception)


def test_defects_are_listed_and_a_wrong_name_is_answered_with_the_nearest() -> None:
    assert "lost-notice" in run(app, ["--defect", "list"]).stdout
    wrong = run(app, ["--defect", "lost-notise"])
    assert "lost-notice" in str(wrong.exception)


@pytest.mark.parametrize("wrong", [["--seeds", "0"], ["--first", "-1"]])
def test_numbers_that_make_no_sense_are_refused(wrong: list[str]) -> None:
    assert run(app, wrong).exit_code == 2


def test_wrong_use_is_one_line_and_exit_code_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["simulation", "--scenario", "balanse"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("roquet: no scenario is called 'balanse'")
