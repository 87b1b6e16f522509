"""Container steps: builds and runs a Containerfile in a bare chroot, where no container engine is.

    unshare --mount python tools/container_steps.py CONTAINERFILE WHEEL DIRECTORY roquet namesrv …

For root on Linux, in a mount namespace of its own. Programs and libraries of this machine take the
place of the base image; the rest is as the file says: its steps, user, variables, health check. The
server runs in a read-only root with a volume, is asked for its health until it is ready, gets
SIGTERM, and a line of JSON says how that went.
"""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

SYSTEM: Final = ("usr", "bin", "sbin", "lib", "lib64")
"""Directories that stand for the base image, seen read-only."""

PYTHON: Final = "/opt/python"
"""Where the Python that runs this is seen in the root."""

IGNORED: Final = ("ARG", "WORKDIR", "STOPSIGNAL", "EXPOSE", "ENTRYPOINT", "CMD")
"""Instructions without a step; the command is given in full."""

CHROOT: Final = shutil.which("chroot", path=f"{os.environ['PATH']}:/usr/sbin:/sbin") or "chroot"

READY_S: Final = 60
STOP_S: Final = 60


class Instruction(NamedTuple):
    """A line of the file."""

    name: str
    text: str


def instructions(file: Path) -> Iterator[Instruction]:
    """The lines, without comments; continued ones are joined."""
    text = re.sub(r"^\s*#.*\n", "", file.read_text("utf-8"), flags=re.MULTILINE)
    for line in text.replace("\\\n", " ").splitlines():
        name, _, rest = line.strip().partition(" ")
        if name:
            yield Instruction(name, rest.strip())


class Root:
    """A root directory that is being made, and what the file has said so far."""

    def __init__(self, directory: Path, wheel: Path) -> None:
        self.directory = directory
        self._wheel = wheel
        self._environ = {
            "PATH": f"{PYTHON}/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "LD_LIBRARY_PATH": f"{PYTHON}/lib",  # its own library, not one of the same version
        }
        self.user = "0"
        self.check: Sequence[str] = ()
        self.volume = ""

    def make(self) -> None:
        """Make a root of this machine's programs."""
        for name in SYSTEM:
            source, target = Path("/", name), self.directory / name
            if source.is_symlink():
                target.symlink_to(source.readlink())
            elif source.is_dir():
                _show(str(source), _folder(target))
        _show(sys.base_prefix, _folder(self.directory / PYTHON[1:]))
        for name in ("dev", "proc"):
            _mount("--rbind", f"/{name}", str(_folder(self.directory / name)))
        _folder(self.directory / "tmp").chmod(0o1777)
        shutil.copytree("/etc", self.directory / "etc", symlinks=True)

    def apply(self, step: Instruction) -> None:
        """Do what an instruction says; some mean nothing here."""
        if step.name in IGNORED or "--from=" in step.text:
            return
        if (act := getattr(self, f"_{step.name.lower()}", None)) is None:
            raise SystemExit(f"{step.name}: this tool does not know it")
        act(step.text)

    def _from(self, _text: str) -> None:
        self.user = "0"

    def _copy(self, text: str) -> None:
        shutil.copy(self._wheel, _folder(self.directory / text.split()[-1].strip("/")))

    def _run(self, text: str) -> None:
        self.run(["sh", "-ec", text], check=True)

    def _user(self, text: str) -> None:
        self.user = text

    def _env(self, text: str) -> None:
        for name, value in re.findall(r"(\w+)=(\S+)", text):
            self._environ[name] = value.replace("$PATH", self._environ["PATH"])

    def _volume(self, text: str) -> None:
        self.volume = text

    def _healthcheck(self, text: str) -> None:
        self.check = json.loads(text.partition("CMD ")[2])

    def seal(self) -> None:
        """Make the root read-only, but for the volume and /tmp."""
        for place in (self.volume.strip("/"), "tmp"):
            target = str(self.directory / place)
            _mount("--bind", target, target)
        _show(str(self.directory), self.directory)

    def start(self, command: Sequence[str]) -> "subprocess.Popen[bytes]":
        """Start a command in the root, as the user of the file."""
        return subprocess.Popen(self._in_root(command), env=self._variables())

    def run(self, command: Sequence[str], *, check: bool = False) -> int:
        """Run a command in the root to its end; its exit code."""
        return subprocess.run(
            self._in_root(command), env=self._variables(), check=check, stdout=sys.stderr
        ).returncode

    def _in_root(self, command: Sequence[str]) -> list[str]:
        user = self.user if ":" in self.user else f"{self.user}:{self.user}"
        return [CHROOT, f"--userspec={user}", str(self.directory), *command]

    def _variables(self) -> Mapping[str, str]:
        index = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
        return {**index, **self._environ}


def main() -> None:
    """Build, run, ask, stop."""
    summary = (__doc__ or "").partition("\n")[0]
    parser = argparse.ArgumentParser(description=summary)
    parser.add_argument("file", type=Path, metavar="CONTAINERFILE")
    parser.add_argument("wheel", type=Path)
    parser.add_argument("directory", type=Path, help="the root, which is made")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="that the container runs")
    args = parser.parse_args()
    tried(args.file, args.wheel.resolve(), args.directory.resolve(), args.command)


def tried(file: Path, wheel: Path, directory: Path, command: Sequence[str]) -> None:
    """Build, run, ask and stop a container, and print how that went."""
    root = Root(directory, wheel)
    root.make()
    for step in instructions(file):
        root.apply(step)
    root.seal()
    with root.start(command) as server:
        give_up_s = time.monotonic() + READY_S
        while (health := root.run(root.check)) and time.monotonic() < give_up_s:
            time.sleep(0.2)
        facts = {
            "uid": int(re.findall(r"^Uid:\s+(\d+)", _status(server.pid), re.MULTILINE)[0]),
            "health": health,
            "may write": [
                place
                for place in ("/", "/opt/roquet", "/etc", "/usr", root.volume, "/tmp")
                if root.run(["touch", f"{place}/written"]) == 0
            ],
        }
        server.send_signal(signal.SIGTERM)
        facts["exit code"] = server.wait(STOP_S)
    print(json.dumps(facts))


def _status(pid: int) -> str:
    return Path(f"/proc/{pid}/status").read_text("ascii")


def _show(source: str, target: Path) -> None:
    """Show a directory at another place, read-only; what is mounted in it stays as it is."""
    _mount("--rbind", source, str(target))
    _mount("-o", "remount,bind,ro", str(target))


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


def _folder(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    return path


if __name__ == "__main__":
    main()
