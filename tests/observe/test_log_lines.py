import json
import logging
from concurrent.futures import ThreadPoolExecutor

from roquet.observe.log_lines import (
    AUDIT,
    MESSAGE_LENGTH_MAX,
    TRACE_LENGTH_MAX,
    JsonFormatter,
    LineFilter,
    PrintableFormatter,
    cut,
)
from roquet.rules.line_limit import BURST, PAUSE_MS


def formatted(text: str, *values: object, error: Exception | None = None) -> str:
    trace = (type(error), error, error.__traceback__) if error else None
    record = logging.LogRecord("roquet.x", logging.ERROR, "x.py", 1, text, values, trace)
    return PrintableFormatter("%(levelname)s %(message)s").format(record)


def test_a_name_forges_no_line_and_commands_no_terminal() -> None:
    line = formatted("group %s left", "g\n2026-01-01 ERROR forged\x1b[2J\u202e\x85")
    assert line == r"ERROR group g\n2026-01-01 ERROR forged\x1b[2J\u202e\x85 left"


def test_numbers_and_other_forms_of_values_are_written_as_they_are() -> None:
    assert formatted("%d of %.1f, %r, %5s|", 3, 2.5, "a\nb", "x") == (
        r"ERROR 3 of 2.5, 'a\nb',     x|"
    )


def test_values_by_name_are_escaped_too() -> None:
    record = logging.makeLogRecord({"msg": "%(who)s", "args": {"who": "a\rb"}})
    assert PrintableFormatter("%(message)s").format(record) == r"a\rb"


def test_a_text_that_is_not_a_format_is_escaped() -> None:
    assert formatted("100 %\x1b") == r"ERROR 100 %\x1b"


def test_only_the_first_line_of_a_traceback_is_at_the_margin() -> None:
    error = ValueError("remark\nERROR forged\x07")
    first, *rest = formatted("it failed", error=error).splitlines()
    assert first == "ERROR it failed"
    assert rest[-2:] == ["    ValueError: remark", r"    ERROR forged\x07"]
    assert all(line.startswith("    ") for line in rest)


def test_other_handlers_get_the_values_as_they_were() -> None:
    record = logging.LogRecord("x", logging.INFO, "x.py", 1, "%s", ("a\nb",), None)
    PrintableFormatter().format(record)
    assert record.args == ("a\nb",)
    assert record.getMessage() == "a\nb"


def as_json(text: str, *values: object, **more: object) -> str:
    fields = {"name": "roquet.x", "levelname": "ERROR", "msg": text, "args": values, **more}
    return JsonFormatter().format(logging.makeLogRecord(fields))


def test_a_line_of_json_has_the_text_its_event_and_the_fields() -> None:
    line = json.loads(
        as_json("%s: gone", "1.2.3.4:5", created=1.25, msecs=250, client="1.2.3.4:5", request=10)
    )
    assert line == {
        "time": "1970-01-01T00:00:01.250Z",
        "level": "ERROR",
        "logger": "roquet.x",
        "message": "1.2.3.4:5: gone",
        "event": "%s: gone",
        "client": "1.2.3.4:5",
        "request": 10,
    }


def test_json_is_one_printable_line_whatever_a_client_sent() -> None:
    name = "g\n{}\x1b[2J\u202e\ud800"
    error = ValueError(name)
    text = as_json("%s", name, topic=name, exc_info=(ValueError, error, None))
    assert text.isprintable()
    line = json.loads(text)
    assert line["topic"] == name
    assert "ValueError" in line["trace"]


def made_at(now_ms: int, **more: object) -> logging.LogRecord:
    fields = {"name": "roquet.x", "levelno": logging.WARNING, "msg": "gone", "lineno": 1}
    return logging.makeLogRecord(fields | {"created": now_ms / 1_000} | more)


def test_a_place_that_logs_for_each_request_is_cut_short_and_says_so() -> None:
    line_filter = LineFilter()
    records = [made_at(1_000) for _ in range(BURST + 50)]
    assert sum(map(line_filter.filter, records)) == BURST
    assert line_filter.filter(made_at(1_000, lineno=2)), "another place has its own lines"
    assert line_filter.filter(made_at(1_000, levelno=logging.ERROR)), "and another level has"
    later = made_at(1_000 + PAUSE_MS)
    assert line_filter.filter(later)
    said = PrintableFormatter("%(message)s").format(later)
    assert said == "gone (50 lines like this one were left out before it)"
    assert json.loads(JsonFormatter().format(later))["left_out"] == 50


def test_lines_of_several_threads_are_counted_together() -> None:
    line_filter = LineFilter()
    with ThreadPoolExecutor(8) as pool:
        written = pool.map(line_filter.filter, [made_at(1_000) for _ in range(10 * BURST)])
        assert sum(written) == BURST


def test_lines_for_an_audit_and_those_that_an_operator_asked_for_are_all_written() -> None:
    line_filter = LineFilter()
    for more in (AUDIT, {"levelno": logging.DEBUG}):
        assert all(line_filter.filter(made_at(1_000, **more)) for _ in range(2 * BURST))
    assert json.loads(JsonFormatter().format(made_at(1_000, **AUDIT)))["audit"] is True


def test_a_long_name_makes_no_long_line() -> None:
    name = "n" * 1_000_000
    text = formatted("no topic %s", name)
    assert len(text) < MESSAGE_LENGTH_MAX + 100
    assert text.startswith("ERROR no topic nnn")
    assert "[…995,913 characters…]" in text
    assert len(as_json(name)) < 3 * MESSAGE_LENGTH_MAX


def test_a_long_traceback_keeps_its_end() -> None:
    error = ValueError("x" * 1_000_000 + "!")
    for text in (
        formatted("it failed", error=error),
        json.loads(as_json("it failed", exc_info=(ValueError, error, None)))["trace"],
    ):
        assert len(text) < TRACE_LENGTH_MAX + 200
        assert text.endswith("x!")


def test_a_text_that_fits_is_not_cut() -> None:
    assert cut("abcd", 4) == "abcd"
    assert cut("abcde", 4) == "ab […1 characters…] de"
