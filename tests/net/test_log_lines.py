import logging

from roquet.net.log_lines import PrintableFormatter


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
