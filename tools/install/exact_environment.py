"""Makes a Python environment that holds Roquet's wheel and what one install line brings.

python tools/install/exact_environment.py DIRECTORY 'roquet[spark]'

Nothing else is in it. The packages are links into the environment that runs this, so that it takes
seconds and no package index: what is missing there is missing for a user who typed that line, too.
"""

import argparse
import subprocess
import sys
import venv
from collections.abc import Iterable, Iterator
from importlib.metadata import (
    Distribution,
    PackageNotFoundError,
    PathDistribution,
    distribution,
)
from pathlib import Path
from typing import Final
from zipfile import Path as ZipPath

from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from wheels import build_wheel

ROOT: Final = Path(__file__).resolve().parents[2]


def requirements_of(package: Distribution, extras: Iterable[str]) -> Iterator[Requirement]:
    """Requirements of a package on this machine with these extras."""
    known = {name: str(value) for name, value in default_environment().items()}
    for line in package.requires or ():
        wanted = Requirement(line)
        choices = [{**known, "extra": extra} for extra in ("", *extras)]
        if wanted.marker is None or any(wanted.marker.evaluate(choice) for choice in choices):
            yield wanted


def metadata_of(wheel: Path) -> Distribution:
    """The metadata in a wheel."""
    (directory,) = (path for path in ZipPath(wheel).iterdir() if path.name.endswith(".dist-info"))
    return PathDistribution(directory)


def closure(line: str, wheel: Path) -> dict[str, Distribution]:
    """All packages that an install line brings, by their canonical names, without Roquet itself.

    The line is what follows `pip install`: one requirement or several, without quotes. Roquet's own
    requirements are those of the wheel.

    Raises LookupError for one that the environment of this process lacks.
    """
    brought: dict[str, Distribution] = {}
    waiting, seen = [*map(Requirement, line.split())], set()
    while waiting:
        wanted = waiting.pop()
        name = canonicalize_name(wanted.name)
        asked = (name, frozenset(wanted.extras))
        if asked in seen:
            continue
        seen.add(asked)
        try:
            brought[name] = metadata_of(wheel) if name == "roquet" else distribution(name)
        except PackageNotFoundError as error:
            raise LookupError(f"{name} is not installed here, and {line!r} asks for it") from error
        waiting += requirements_of(brought[name], wanted.extras)
    brought.pop("roquet", None)
    return brought


def link(package: Distribution, site: Path) -> None:
    """Link a package's files below `site`; whole folders, but for those that packages share."""
    for file in package.files or ():
        place, first = site / file, site / file.parts[0]
        if file.parts[0] == ".." or first.is_symlink() or place.exists():
            continue
        source = Path(str(package.locate_file(file)))
        whole = Path(str(package.locate_file(file.parts[0])))
        if whole.is_dir() and (whole / "__init__.py").exists():
            first.symlink_to(whole, target_is_directory=True)
        elif source.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(source)


def make(directory: Path, line: str, wheel: Path) -> Path:
    """Make the environment; gives the folder of its programs."""
    venv.EnvBuilder(with_pip=False, symlinks=True, clear=True).create(directory)
    (site,) = directory.glob("lib/python3.*/site-packages")
    for package in closure(line, wheel).values():
        link(package, site)
    programs = directory / "bin"
    _pip("--python", str(programs / "python"), "install", "--no-deps", "--no-index", str(wheel))
    return programs


def _pip(*arguments: str) -> None:
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, *arguments], check=True, cwd=ROOT)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path, help="of the environment; not there yet")
    parser.add_argument("line", help="as after `pip install`, e.g. 'roquet[spark]'")
    options = parser.parse_args()
    wheels = options.directory.parent / "wheels"
    made = make(options.directory, options.line, build_wheel(wheels))
    print(f"{made / 'roquet'} is ready")
