"""The figures of a small house of its own, and those of this one."""

import json
from pathlib import Path

import pytest

import house


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A package of two folders, with a name too many, circles and riddles."""
    files = {
        "roquet/__init__.py": '"""A house."""\n',
        "roquet/net/__init__.py": "",
        "roquet/net/hall.py": (
            '"""Who has a place."""\n\nclass Limit:\n    """What may come in."""\n'
        ),
        "roquet/net/server.py": "from roquet.rules import limits\n\nclass Server: ...\n",
        "roquet/rules/limits.py": (
            "from typing import TYPE_CHECKING\n"
            "if TYPE_CHECKING:\n    from roquet.net.server import Server\n"
            "class Limit:\n    '''A bound.'''\n"
            "class _Own: ...\n"
            "Server_ = int\nNames = list[str]\nSIZE_MAX = 3\n"
        ),
        "roquet/rules/names.py": "from roquet.rules.more import f\nNames = set[str]\n",
        "roquet/rules/more.py": "def f():\n    import roquet.rules.names\n",
    }
    for name, text in files.items():
        path = tmp_path / "src" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_files_and_lines_are_counted_by_top_folder(small: Path) -> None:
    assert house.sizes(small)["src"] == {"files": 7, "lines": 21}
    assert house.sizes(small)["tests"] == {"files": 0, "lines": 0}


def test_the_widest_folder_is_the_first(small: Path) -> None:
    assert [*house.modules_per_folder(small).items()] == [("roquet/rules", 3), ("roquet/net", 2)]


def test_a_name_has_several_meanings_when_two_modules_define_it(small: Path) -> None:
    assert house.several_meanings(small, with_aliases=False) == {
        "Limit": ["roquet.net.hall", "roquet.rules.limits"]
    }
    assert house.several_meanings(small).keys() == {"Limit", "Names"}


def test_private_classes_and_constants_are_no_public_names(small: Path) -> None:
    names = house.definitions(small, with_aliases=True)
    assert names.keys() == {"Limit", "Names", "Server", "Server_"}


def test_imports_in_functions_make_circles(small: Path) -> None:
    circles = house.import_circles(small, with_type_checking=False)
    assert circles == [["roquet.rules.more", "roquet.rules.names"]]


def test_imports_for_type_checkers_count_for_cycles(small: Path) -> None:
    figures = house.figures(small)
    assert figures["import_circles"] == [["roquet.rules.more", "roquet.rules.names"]]
    assert figures["type_only_circles"] == [["roquet.net.server", "roquet.rules.limits"]]


def test_circles_of_a_graph_are_its_strongly_connected_components() -> None:
    graph = {"a": "b", "b": "ca", "c": "d", "d": "ec", "e": "", "f": "a"}
    assert house.circles(graph) == [["a", "b"], ["c", "d"]]


def test_a_module_or_class_with_a_banned_word_is_listed_with_it(small: Path) -> None:
    (small / "src/roquet/rules/told.py").write_text("class DataManager: ...\n")
    assert house.banned_words(small) == {
        "roquet.net.hall": ["hall"],
        "roquet.rules.told": ["told"],
        "roquet.rules.told.DataManager": ["manager"],
    }


def test_docstrings_with_banned_beginnings_are_listed_with_their_lines(small: Path) -> None:
    assert house.banned_beginnings(small) == {
        "src/roquet/net/hall.py:1": "Who has a place.",
        "src/roquet/net/hall.py:4": "What may come in.",
    }


def test_the_words_of_a_name_are_found_in_either_case() -> None:
    assert house.words_of("dead_letters") == {"dead", "letters"}
    assert house.words_of("SQLFilterV2") == {"sql", "filter", "v2"}


REPORT = """<testsuites><testsuite time="7.5">
<testcase classname="tests.net.test_server" name="a" time="1.25"/>
<testcase classname="tests.net.test_server" name="b" time="2"/>
<testcase classname="tests.wire.test_frame" name="c" time="5"/>
</testsuite></testsuites>"""


def test_the_time_of_tests_is_read_from_a_junit_report(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(REPORT)
    assert house.test_time(report) == {
        "tests": 3,
        "seconds": 7.5,
        "seconds_of_all_tests": 8.25,
        "slowest_files": {"tests.wire.test_frame": 5.0, "tests.net.test_server": 3.2},
    }
    assert "3 in 8 s by the clock" in house.test_time_table(house.test_time(report))


def test_the_table_shows_every_figure(small: Path) -> None:
    table = house.table(house.figures(small))
    for line in (
        "src                 7       21",
        "Public class names: 2, defined in more than one module: 1",
        "With type aliases: 4, defined in more than one module: 2",
        "roquet.net.server ↔ roquet.rules.limits",
        "Names with banned words: 1",
        "Docstrings with banned beginnings: 2",
    ):
        assert line in table


def test_names_are_drawn_at_random_and_the_same_from_the_same_seed(small: Path) -> None:
    drawn = house.drawn_names(2, 7, small)
    assert drawn == house.drawn_names(2, 7, small)
    assert len(drawn) == 2
    assert sorted(house.drawn_names(9, 1, small)) == [
        "Limit (roquet.net.hall): What may come in.",
        "Limit (roquet.rules.limits): A bound.",
        "Server (roquet.net.server): ",
    ]


def test_the_command_prints_json(
    capsys: pytest.CaptureFixture[str], small: Path, tmp_path: Path
) -> None:
    report = tmp_path / "report.xml"
    report.write_text(REPORT)
    house.main(["--json", "--test-time", str(report)], small)
    printed = json.loads(capsys.readouterr().out)
    assert printed["sizes"]["src"]["files"] == 7
    assert printed["test_time"]["tests"] == 3


def test_the_command_prints_a_table_or_names(
    capsys: pytest.CaptureFixture[str], small: Path
) -> None:
    house.main([], small)
    assert capsys.readouterr().out.startswith("Python ")
    house.main(["--names", "3", "--seed", "1"], small)
    assert len(capsys.readouterr().out.splitlines()) == 3


def test_this_house_has_modules_and_classes() -> None:
    assert "roquet.model.message" in house.sources()
    assert sum(house.modules_per_folder().values()) > 300
