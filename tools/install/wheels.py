"""Builds Roquet's wheel for each of several Pythons.

python tools/install/wheels.py [--into DIRECTORY] [PYTHON …]

Without a Python it is built for the one that runs this, in its own environment. Each other one gets
an environment for the build, with what requirements/build.txt locks. A wheel holds the compiled
inner loops if there is a C compiler; else a warning is printed, and it runs as pure Python.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final
from zipfile import ZipFile

ROOT: Final = Path(__file__).resolve().parents[2]

SOURCES: Final = ("pyproject.toml", "LICENSE", "README.md", "docs/wheel.md", "src")
"""Files and folders that a build reads."""

LEFT_OUT: Final = ("__pycache__", "*.egg-info", "*.so", "*.pyd", "_speedups.c")
"""Generated files, which another Python or an older build may have left."""

EXTENSION: Final = "roquet/wire/records/_speedups."


def copy_sources(directory: Path) -> Path:
    """Copy what a build reads. Built in the checkout, a wheel would also get its older files."""
    for name in SOURCES:
        target = directory / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, target, ignore=shutil.ignore_patterns(*LEFT_OUT))
        else:
            shutil.copy(ROOT / name, target)
    return directory


def build_wheel(
    into: Path, python: str = sys.executable, environment: Mapping[str, str] | None = None
) -> Path:
    """Build the wheel with a Python that has the packages of the build; gives its path.

    `environment` are variables beside those of this process.
    """
    variables = {**os.environ, **(environment or {})}
    with tempfile.TemporaryDirectory() as place:
        sources, built = copy_sources(Path(place, "sources")), Path(place, "built")
        _pip(
            python, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(built),
            str(sources), variables=variables,
        )  # fmt: skip
        (wheel,) = built.glob("roquet-*.whl")
        into.mkdir(parents=True, exist_ok=True)
        return Path(shutil.move(wheel, into / wheel.name))


def is_compiled(wheel: Path) -> bool:
    """Whether a wheel holds the compiled inner loops."""
    with ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.startswith(EXTENSION)]
    return any(name.endswith((".so", ".pyd")) for name in names)


def build_environment(directory: Path, python: str) -> str:
    """Make an environment with the packages of the build; gives its Python."""
    if python == sys.executable:
        venv.create(directory, with_pip=True)
    else:
        subprocess.run([python, "-m", "venv", str(directory)], check=True)
    made = str(directory / ("Scripts" if os.name == "nt" else "bin") / "python")
    locked = str(ROOT / "requirements" / "build.txt")
    _pip(made, "install", "--require-hashes", "--only-binary", ":all:", "-r", locked)
    return made


def _pip(python: str, *arguments: str, variables: Mapping[str, str] | None = None) -> None:
    command = [python, "-m", "pip", "--disable-pip-version-check", "--quiet", *arguments]
    subprocess.run(command, check=True, env=variables)


def main(arguments: Sequence[str] | None = None) -> None:
    """Build the wheels that the command line asks for, and print their names."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--into", type=Path, default=ROOT / "dist")
    parser.add_argument("pythons", nargs="*", metavar="PYTHON")
    options = parser.parse_args(arguments)
    for python in options.pythons or [None]:
        with tempfile.TemporaryDirectory() as place:
            made = sys.executable if python is None else build_environment(Path(place), python)
            wheel = build_wheel(options.into, made)
        print(wheel)
        if not is_compiled(wheel):
            print(f"{wheel.name} is pure Python: no C compiler was found", file=sys.stderr)


if __name__ == "__main__":
    main()
