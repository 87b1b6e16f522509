"""Flame graphs of our broker under four loads, by py-spy (Python) and perf (interpreter, kernel).

    python -m bench.flame_graphs --only 64,drain --seconds 10

Loads: 64 connections, 1 connection, batches, and a drain by our PushConsumer. Each profiler that is
there draws an SVG file for each load; one line names what is missing. py-spy is installed into
build/ if it is not on the path, and draws by itself; stacks of perf are drawn here. Linux only.
"""

import argparse
import contextlib
import itertools
import shutil
import subprocess
import sys
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bench.lib.filled import filled
from bench.lib.raw_client import Client, Load, ours, requests
from roquet.pictures.escaping import escape_text
from roquet.pictures.page import COLOURS, PALETTE

HERE = Path(__file__).resolve().parent

LOADS: Final = {
    "64": Load(connections=64),
    "1": Load(connections=1),
    "batches": Load(connections=10, batch=32),
}
DRAIN: Final = "drain"
DRAIN_TOPIC: Final = "ClientBench"
"""The topic that `clients.py --consume` reads."""

ENVIRONMENT: Final = HERE.parent / "build" / "py-spy"
RATE: Final = 499
"""Samples a second: no divisor of the broker's own periods."""

WIDTH: Final = 1_200
LINE: Final = 17
LETTER: Final = 6.2
"""Units of a drawn graph; the width of a letter is a mean."""
NARROWEST: Final = 0.4
"""Narrower boxes are left out."""

Stacks = Counter[tuple[str, ...]]
"""Samples by stack, the outermost function first."""


# -- profilers -----------------------------------------------------------------------------------


def py_spy(*, may_install: bool) -> str | None:
    """The command, if need be from an environment of its own; None where it is missing."""
    if found := shutil.which("py-spy"):
        return found
    command = ENVIRONMENT / "bin" / "py-spy"
    if not command.exists() and may_install:
        pip = [str(ENVIRONMENT / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
        with contextlib.suppress(subprocess.CalledProcessError):
            subprocess.run([sys.executable, "-m", "venv", str(ENVIRONMENT)], check=True)
            subprocess.run([*pip, "install", "--quiet", "py-spy"], check=True)
    return str(command) if command.exists() else None


def recorders(given: argparse.Namespace, name: str, pid: int) -> dict[str, list[str]]:
    """The command of each profiler that is there, by its name."""
    seconds = str(max(1, round(given.seconds)))
    found: dict[str, list[str]] = {}
    if command := py_spy(may_install=given.install):
        out = str(given.out / f"{name}-py-spy.svg")
        found["py-spy"] = [
            *(command, "record", "--pid", str(pid), "--duration", seconds, "--rate", str(RATE)),
            *("--function", "--nonblocking", "--format", "flamegraph", "--output", out),
        ]
    if command := shutil.which("perf"):
        data = str(given.out / f"{name}-perf.data")
        found["perf"] = [
            *(command, "record", "--quiet", "-F", str(RATE), "-g", "-p", str(pid), "-o", data),
            *("--", "sleep", str(given.seconds)),
        ]
    return {tool: found[tool] for tool in given.tools.split(",") if tool in found}


@contextlib.contextmanager
def recording(command: Sequence[str]) -> Iterator["subprocess.Popen[str]"]:
    """A profiler at work; it ends by itself."""
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as child:
        try:
            yield child
        finally:
            _, said = child.communicate()
            if child.returncode:
                reason = (said.strip().splitlines() or ["no reason given"])[-1]
                print(f"  {Path(command[0]).name} failed: {reason}")


# -- loads ---------------------------------------------------------------------------------------


def under_load(given: argparse.Namespace, name: str) -> None:
    """The graphs of a load by the round-trip client, one profiler after the other."""
    frames = itertools.cycle(requests(LOADS[name]))
    with (
        tempfile.TemporaryDirectory(prefix="roquet-profile-") as folder,
        ours(Path(folder)) as brokers,
        contextlib.closing(Client(brokers.addresses, LOADS[name].connections)) as client,
    ):
        client.run(frames, given.seconds / 5)
        for tool, command in recorders(given, name, brokers.pids[0]).items():
            with recording(command) as child:
                while child.poll() is None:
                    client.run(frames, 0.2)
            finish(given, name, tool)


def draining(given: argparse.Namespace) -> None:
    """The graphs of a broker whose full topic is read again and again."""
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="roquet-profile-"))
        topic = stack.enter_context(filled(Path(folder), DRAIN_TOPIC, given.messages, 128))
        for tool, command in recorders(given, DRAIN, topic.pid).items():
            with recording(command) as child:
                for number in itertools.count():
                    if child.poll() is not None:
                        break
                    consume(topic.namesrv, f"{tool}-{number}", given.seconds + 60)
            finish(given, DRAIN, tool)


def consume(namesrv: str, group: str, seconds: float) -> None:
    """Read all messages by a new group, in a process of its own."""
    command = [sys.executable, "-m", "bench.clients", "--consume", namesrv, group]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=seconds)


def finish(given: argparse.Namespace, name: str, tool: str) -> None:
    """Draw the stacks of perf, and say where the graph is."""
    picture = given.out / f"{name}-{tool}.svg"
    data = given.out / f"{name}-perf.data"
    if tool == "perf" and data.exists():
        command = ["perf", "script", "-i", str(data), "-F", "comm,ip,sym"]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        picture.write_text(draw(fold(done.stdout.splitlines()), f"{name}: perf"), "utf-8")
        data.unlink()
    if picture.exists():
        print(f"  {picture}", flush=True)


# -- graphs of perf's stacks ---------------------------------------------------------------------


def fold(lines: Iterable[str]) -> Stacks:
    """Stacks of `perf script -F comm,ip,sym`: a command, functions from inside, a blank line."""
    stacks: Stacks = Counter()
    inside: list[str] = []
    command = ""
    for line in itertools.chain(lines, [""]):
        if not line.strip():
            if command:
                stacks[command, *reversed(inside)] += 1
            command, inside = "", []
        elif line[0].isspace():
            inside.append(line.split(None, 1)[1].strip() if " " in line.strip() else "[unknown]")
        else:
            command = line.strip()
    return stacks


@dataclass
class Box:
    """A function and what it called, with the samples in which it was on the stack."""

    count: int = 0
    inside: dict[str, "Box"] = field(default_factory=dict)

    def depth(self) -> int:
        """Number of lines that the boxes inside take."""
        return max((1 + box.depth() for box in self.inside.values()), default=0)


def tree(stacks: Stacks) -> Box:
    """All stacks in one box."""
    root = Box()
    for stack, count in stacks.items():
        box = root
        box.count += count
        for name in stack:
            box = box.inside.setdefault(name, Box())
            box.count += count
    return root


def draw(stacks: Stacks, title: str) -> str:
    """An SVG file, light and dark: the outermost function is at the top."""
    root = tree(stacks)
    height = LINE * (root.depth() + 2)
    scale = WIDTH / max(root.count, 1)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-size="11">'
    style = f"<style>{PALETTE}svg {{ font-family: system-ui, sans-serif; }}\n</style>"
    ground = '<rect width="100%" height="100%" fill="var(--page)"/>'
    name = f'<text x="4" y="13" fill="var(--ink)">{escape_text(title)}, {root.count} samples</text>'
    boxes = _boxes(root, 0, LINE, scale, root.count)
    return "\n".join([head, style, ground, name, *boxes, "</svg>"]) + "\n"


def _boxes(parent: Box, left: float, top: float, scale: float, all_: int) -> Iterator[str]:
    for name, box in sorted(parent.inside.items()):
        width = box.count * scale
        if width >= NARROWEST:
            yield _box(name, (left, top, width), f"{box.count / all_:.1%}")
            yield from _boxes(box, left, top + LINE, scale, all_)
        left += width


def _box(name: str, place: tuple[float, float, float], share: str) -> str:
    left, top, width = place
    colour = f"var(--c{zlib.crc32(name.encode()) % COLOURS})"
    letters = int((width - 4) / LETTER)
    shown = name if len(name) <= letters else f"{name[: letters - 1]}…" if letters > 3 else ""
    text = (
        f'<text x="{left + 3:.1f}" y="{top + 12:.0f}" fill="var(--ink)">{escape_text(shown)}</text>'
    )
    size = f'width="{max(width - 0.5, 0.3):.1f}" height="{LINE - 1}"'
    return (
        f"<g><title>{escape_text(name)}: {share}</title>"
        f'<rect x="{left:.1f}" y="{top:.0f}" {size} fill="{colour}" opacity="0.45"/>'
        f"{text if shown else ''}</g>"
    )


def main() -> None:
    """Profile each load."""
    names = [*LOADS, DRAIN]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(names), help=f"some of {','.join(names)}")
    parser.add_argument("--seconds", type=float, default=10, help="of each graph")
    parser.add_argument("--messages", type=int, default=1_000_000, help="of the drained topic")
    parser.add_argument("--tools", default="py-spy,perf", help="one of them, or both")
    parser.add_argument("--no-install", dest="install", action="store_false", help="of py-spy")
    parser.add_argument("--out", type=Path, default=HERE / "profile")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    lacking = [] if py_spy(may_install=given.install) else ["py-spy (pip install py-spy)"]
    lacking += [] if shutil.which("perf") else ["perf (the system's package linux-perf)"]
    if lacking:
        print(f"missing: {', '.join(lacking)}")
    if len(lacking) == 2:
        return
    for name in given.only.split(","):
        print(name, flush=True)
        if name == DRAIN:
            draining(given)
        else:
            under_load(given, name)


if __name__ == "__main__":
    main()
