import re
from pathlib import Path

import architecture_map


def test_a_module_is_summed_up_by_its_first_line(tmp_path: Path) -> None:
    module = tmp_path / "frame.py"
    module.write_text('"""Frames: length, then bytes.\n\nMore about them.\n"""\n')
    assert architecture_map.summary(module) == "Frames: length, then bytes."


def test_a_module_without_a_docstring_has_no_summary(tmp_path: Path) -> None:
    (tmp_path / "frame.py").write_text("LENGTH = 4\n")
    assert architecture_map.summary(tmp_path / "frame.py") == ""


def test_packages_are_listed_from_the_lowest_layer_up() -> None:
    text = architecture_map.drawn()
    places = [text.index(f"\n  {name}/") for name in ("model", "wire", "store", "client", "cli")]
    assert places == sorted(places)


def test_the_map_has_a_line_for_each_package_and_none_for_a_module() -> None:
    text = architecture_map.drawn()
    packages = (architecture_map.PACKAGE, architecture_map.SIMULATION)
    inits = [init for package in packages for init in package.rglob("__init__.py")]
    assert len(re.findall(r"^ *\w+/ +\S", text, re.MULTILINE)) == len(inits)
    assert ".py" not in text


def test_a_package_is_listed_with_its_modules() -> None:
    listed = architecture_map.modules(architecture_map.PACKAGE / "broker" / "handlers" / "messages")
    assert re.match(r"broker/handlers/messages/: \w.*\n", listed)
    assert re.search(r"^  send.py +\w", listed, re.MULTILINE)


def test_the_simulation_is_listed_from_the_root_on() -> None:
    listed = architecture_map.modules(architecture_map.folder_of("simulation/balance"))
    assert re.match(r"simulation/balance/: \w.*\n", listed)


def test_the_map_is_found_between_its_comments() -> None:
    document = f"# A\n{architecture_map.drawn()}\nmore"
    assert architecture_map.section(document) == architecture_map.drawn()
