"""The page of all results."""

import json
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

ROOT = Path(__file__).resolve().parents[2]

ROW = {
    "work": "send", "unit": "msg/s", "ours": 30_000.0, "genuine": 10_000.0, "ratio": 3.0,
    "goal": ">= 2 x", "holds": "yes", "cause": "", "calibration": "99-101 ms",
}  # fmt: skip


def page_of(build: Path, *arguments: str) -> str:
    out = build / "report.html"
    command = [sys.executable, "-m", "bench.report", "--build", str(build), "--out", str(out)]
    subprocess.run([*command, *arguments], cwd=ROOT, check=True, capture_output=True, timeout=60)
    return out.read_text("utf-8")


def test_the_page_has_a_line_for_each_row_with_its_ratio_goal_and_cause(tmp_path: Path) -> None:
    missed = {**ROW, "work": "pull", "holds": "NO", "cause": "the disk"}
    (tmp_path / "bench-send.json").write_text(json.dumps([ROW, missed]))
    text = page_of(tmp_path)
    assert "1 of 2 goals are reached, 1 are missed" in text
    assert all(
        part in text for part in ("30,000", "10,000", "3.00", "&gt;= 2 x", "the disk", ">NO</td>")
    )


def test_rows_that_fell_short_stand_in_one_list_before_all_others(tmp_path: Path) -> None:
    missed = {**ROW, "work": "pull", "holds": "NO"}
    (tmp_path / "bench-a.json").write_text(json.dumps([ROW]))
    (tmp_path / "bench-b.json").write_text(json.dumps([missed, {**missed, "goal": ""}]))
    text = page_of(tmp_path)
    first, second = text.index("<h2>Fell short</h2>"), text.index("<h2>Works</h2>")
    assert "<td>pull</td>" in text[first:second]
    assert text[first:second].count("<tr>") == 2
    assert "99-101 ms" in text[first:second]
    (tmp_path / "bench-b.json").unlink()
    assert "Fell short" not in page_of(tmp_path)


def test_points_of_a_series_are_one_plot_for_both_sides(tmp_path: Path) -> None:
    points = [{**ROW, "series": "connections: p99, ms", "x": x} for x in (1, 64)]
    (tmp_path / "bench-growth.json").write_text(json.dumps(points))
    text = page_of(tmp_path)
    assert text.count("<svg") == 1
    assert "Apache RocketMQ" in text


def test_files_without_rows_and_steps_that_failed_do_not_prevent_the_page(tmp_path: Path) -> None:
    (tmp_path / "bench-cut.json").write_text('[{"work": ')
    (tmp_path / "bench-other.json").write_text('{"python": "3.11"}')
    text = page_of(tmp_path, "--failed", " spark.py sink.py")
    assert "Failed: spark.py, sink.py." in text
    assert "bench-cut" in text


def test_text_in_results_cannot_become_html(tmp_path: Path) -> None:
    hostile = '"><script>alert(1)</script><img src=x onerror=alert(2)>'
    words = dict.fromkeys(("work", "unit", "goal", "cause"), hostile)
    row = {**ROW, **words, "series": f"{hostile}: {hostile}", "x": 1}
    (tmp_path / "bench-<b>.json").write_text(json.dumps([row, {**row, "x": 64}]))
    text = page_of(tmp_path, "--failed", f" {hostile}")
    assert "&lt;script&gt;alert(1)" in text
    assert not re.search(r"<(script|img|b)\b", text)
    for picture in re.findall(r"<svg.*?</svg>", text, re.DOTALL):
        ET.fromstring(picture)


def test_samples_of_a_soak_are_drawn_over_time(tmp_path: Path) -> None:
    sample = {"own_mib": 50.0, "mapped_mib": 9.0, "p99_ms": 3.0, "descriptors": 40}
    samples = [{"minute": minute, **sample} for minute in (0.0, 0.5, 1.0)]
    (tmp_path / "soak-samples.json").write_text(json.dumps(samples))
    assert page_of(tmp_path).count("<svg") == 3
