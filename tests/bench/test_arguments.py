"""Arguments that benchmarks of two sides share."""

import pytest
from bench.lib.arguments import parse, parser_for


def test_works_are_measured_in_their_own_order_and_all_without_a_choice() -> None:
    assert parse(parser_for("", "lone", ("64", "1")), []).only == ["64", "1"]
    assert parse(parser_for("", "lone", ("64", "1")), ["--only", "1,64"]).only == ["64", "1"]


def test_a_quick_measurement_is_one_short_round() -> None:
    given = parse(parser_for("", "lone", ("64",)), ["--quick", "--warm", "1"])
    assert (given.rounds, given.seconds, given.warm) == (1, 3, 1)


def test_a_work_that_does_not_exist_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(parser_for("", "lone", ("64",)), ["--only", "65"])
    assert "--only: no such work: 65" in capsys.readouterr().err
