"""The report page is self-contained, reproducible, and true to its figures."""

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from roquet.lab import spark_job
from roquet.lab.invariants import InvariantResult
from roquet.lab.report import html
from roquet.lab.scenario import PRESETS, ScenarioTimes
from roquet.lab.study import Study, StudyDirectory
from roquet.lab.summary import StudySummary, summarize

STUDY = Study(
    scenarios=(replace(PRESETS["churn"], messages=60, times=ScenarioTimes(save_ms=700)),),
    strategies=("AVG", "STICKY", "CONFIG", "POP"),
    histories=12,
    seed=4,
)


@pytest.fixture(scope="module")
def summary(tmp_path_factory: pytest.TempPathFactory) -> StudySummary:
    place = StudyDirectory(tmp_path_factory.mktemp("lab"))
    place.part(0).mkdir(parents=True)
    table = pa.Table.from_batches([spark_job.rows(STUDY, list(range(12)))])
    pq.write_table(table, place.part(0) / "00.parquet")
    return summarize(STUDY, place)


def test_a_page_needs_nothing_else_and_is_the_same_each_time(summary: StudySummary) -> None:
    text = html(summary)
    assert text == html(summary)
    assert text.startswith("<!doctype html>")
    assert not re.search(r"(src|href)=|<script|url\(|@import", text)
    assert "12 histories of one scenario under 4 strategies, from seed 4" in text


def test_the_report_recommends_strategies(summary: StudySummary) -> None:
    text = html(summary)
    assert re.search(r'few.moves</td><td class="good">STICKY</td>', text)
    assert "even\N{NO-BREAK SPACE}load" in text


def test_every_picture_is_well_formed_and_has_a_row_for_each_strategy(
    summary: StudySummary,
) -> None:
    pictures = re.findall(r"<svg.*?</svg>", html(summary), re.DOTALL)
    assert len(pictures) >= 7
    for picture in pictures:
        ET.fromstring(picture)
    moved = next(p for p in pictures if ">queues</text>" in p)
    assert all(f">{name}</text>" in moved for name in STUDY.strategies)


def test_the_report_names_the_times_and_their_source(summary: StudySummary) -> None:
    text = html(summary)
    assert "rules.liveness.SILENCE_MS_MAX" in text
    assert "<td>700 ms</td><td>own</td>" in text


def test_a_claim_that_does_not_hold_is_the_first_thing_to_be_read(summary: StudySummary) -> None:
    assert '<p class="good">' in html(summary)
    broken = InvariantResult(text="AVG is even", found="2", holds=False)
    text = html(replace(summary, claims=(*summary.claims, broken)))
    assert '<p class="bad">' in text
    assert '<td class="bad">does not hold</td>' in text


def test_every_column_of_the_table_has_its_means(summary: StudySummary) -> None:
    text = html(summary)
    for name in ("pause_max_s", "moved_least", "p50_ms", "stranded"):
        assert f"<td>{name}</td>" in text
    assert "<details>" in text


def test_a_page_of_one_history_can_be_made(tmp_path: Path) -> None:
    study, place = replace(STUDY, histories=1, strategies=("AVG",)), StudyDirectory(tmp_path)
    place.part(0).mkdir(parents=True)
    pq.write_table(
        pa.Table.from_batches([spark_job.rows(study, [0])]), place.part(0) / "00.parquet"
    )
    assert "1 histor" in html(summarize(study, place))
