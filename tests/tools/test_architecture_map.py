from pathlib import Path

import architecture_map


def test_a_module_is_summed_up_by_its_first_line(tmp_path: Path) -> None:
    module = tmp_path / "frame.py"
    module.write_text('"""Frames: length, then bytes.\n\nMore about them.\n"""\n')
    assert architecture_map.summary(module) == "Frames: length, then bytes."


def test_a_module_that_says_nothing_has_no_summary(tmp_path: Path) -> None:
    (tmp_path / "frame.py").write_text("LENGTH = 4\n")
    assert architecture_map.summary(tmp_path / "frame.py") == ""


def test_rooms_stand_from_the_ground_floor_up() -> None:
    text = architecture_map.drawn()
    places = [text.index(f"\n  {room}/") for room in ("model", "wire", "store", "client", "cli")]
    assert places == sorted(places)


def test_the_map_is_found_between_its_marks() -> None:
    document = f"# A\n{architecture_map.drawn()}\nmore"
    assert architecture_map.section(document) == architecture_map.drawn()
