"""Runs a command as on a machine without Java: no JAVA_HOME, every program on PATH but Java's.

python tools/gates/without_java.py COMMAND [ARGUMENT...]
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

JAVA_PROGRAMS = frozenset({"java", "javac", "jps", "jcmd", "mvn", "sbt"})


def link_all_but_java(directory: Path) -> None:
    """Fill a directory with links to what PATH finds, the first one of each name."""
    for folder in os.get_exec_path():
        for program in sorted(Path(folder).glob("*")):
            link = directory / program.name
            if program.name not in JAVA_PROGRAMS and not link.is_symlink() and program.is_file():
                link.symlink_to(program.resolve() if program.is_symlink() else program.absolute())


def main(command: list[str]) -> int:
    """The command's exit code; the command sees no Java."""
    with tempfile.TemporaryDirectory(prefix="without-java-") as name:
        link_all_but_java(Path(name))
        seen = {key: value for key, value in os.environ.items() if not key.startswith("JAVA_HOME")}
        seen["PATH"] = name
        if found := shutil.which("java", path=name):
            sys.exit(f"java is still found: {found}")
        print("no Java on this machine's PATH from here on:", *command, flush=True)
        return subprocess.run(command, env=seen, check=False).returncode


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", nargs=argparse.REMAINDER, help="and its arguments")
    sys.exit(main(parser.parse_args().command))
