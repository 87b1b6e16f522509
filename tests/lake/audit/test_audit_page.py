"""The audit page: findings first, and nothing that needs another file."""

import re

from roquet.lake.audit.audit_page import SHOWN_MAX, html, verdict
from roquet.lake.audit.audit_report import AuditReport, RowGap
from roquet.lake.audit.findings import AuditFinding, CountDifference, HourlyCount

NOON = 491_628


def report(**changes: object) -> AuditReport:
    fields: dict[str, object] = {
        "topic": "orders", "table": "lake", "kind": "delta", "number": 3, "rows": 1200,
        "in_topic": 1200, "waiting": 0, "begin_known": True, "findings": (),
        "hours": (HourlyCount(hour=NOON, topic=1200, table=1200),),
    }  # fmt: skip
    return AuditReport(**{**fields, **changes})  # type: ignore[arg-type]


GONE = AuditFinding(what="missing", broker="a<b", queue_id=3, start=5, end=8, hour=NOON)


def test_a_clean_table_has_a_good_verdict() -> None:
    clean = report()
    assert verdict(clean) == "orders: 1,200 rows in lake: nothing is missing or doubled"
    text = html(clean)
    assert 'class="good"' in text
    assert "2026-01-31 12:00" in text
    assert 'class="bad"' not in text


def test_findings_are_named_by_queue_and_offset() -> None:
    audit_report = report(findings=(GONE,), waiting=7)
    assert verdict(audit_report) == "orders: 1,200 rows in lake: 3 missing; 7 wait in the topic"
    text = html(audit_report)
    for part in ("5..7", "a&lt;b", "2026-01-31 12:00", "still in the topic", 'class="bad"'):
        assert part in text


def test_the_page_needs_nothing_else() -> None:
    text = html(report(findings=(GONE,)))
    assert not re.search(r"<script|<link|<img|@import|url\(", text)


def test_the_first_of_very_many_findings_are_shown() -> None:
    text = html(report(findings=(GONE,) * (SHOWN_MAX + 5)))
    assert text.count("5..7") == SHOWN_MAX
    assert "and 5 more" in text


def test_a_producers_count_has_a_place_of_its_own() -> None:
    audit_report = report(
        producer=(CountDifference(first=NOON, last=NOON + 1, more=-3),),
        hours=(HourlyCount(hour=NOON, producer=1203, topic=None, table=1200),),
    )
    assert "-3 against the producer&#x27;s count" in html(audit_report)
    assert "1,203" in html(audit_report)


def test_duplicate_rows_of_the_sink_are_shown() -> None:
    gaps = (RowGap(what="doubled", writer="q/1/0", start=4, end=5, times=2),)
    assert "q/1/0" in html(report(row_gaps=gaps))
    assert "1 fault in the numbers of rows" in verdict(report(row_gaps=gaps))


def test_an_unknown_beginning_is_reported() -> None:
    assert "does not say at which offsets it began" in html(report(begin_known=False))
