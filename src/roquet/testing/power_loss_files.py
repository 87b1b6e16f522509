"""PowerLossFiles: the store's files in memory, and what a loss of power leaves of them."""

import errno
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Final

from roquet.store.filesystem.directory_lock import store_error
from roquet.store.filesystem.memory_files import MemoryFiles, is_inside

SECTOR_SIZE: Final = 512
"""Bytes that a disk writes wholly or not at all."""

CHUNK_SIZE: Final = 64 * SECTOR_SIZE
"""Files are compared with what is durable in chunks of this size: most of them are equal."""

LOST_NAME: Final = 0.2
"""Probability that the first new name that was not synced is lost, and with it all later ones."""


class PowerLossFiles(MemoryFiles):
    """Files of which only synced bytes and names surely survive a loss of power."""

    def __init__(self) -> None:
        super().__init__()
        self.durable: dict[Path, bytes] = {}
        """Content of each file at its last sync."""
        self.named: set[Path] = set()
        """Files and directories whose names are durable."""
        self.ghosts: dict[Path, bytes] = {}
        """Removed files whose names may come back, with their durable content."""
        self.is_full = False
        """Whether the disk takes nothing more; what has its place can be written."""

    def copy(self) -> "PowerLossFiles":
        """An independent copy: what the next process finds after this one was killed."""
        plain, twin = super().copy(), PowerLossFiles()
        twin.contents, twin.blocks = plain.contents, plain.blocks
        twin.durable, twin.named = dict(self.durable), set(self.named)
        twin.ghosts = dict(self.ghosts)
        twin.is_full = self.is_full
        return twin

    def allocate(self, path: Path, start: int, size: int) -> None:
        """See Files."""
        if start + size > self.blocks.get(path, 0):
            self._check_space(path)
        super().allocate(path, start, size)

    def _check_space(self, path: Path) -> None:
        if self.is_full:
            raise store_error(path, OSError(errno.ENOSPC, "No space left on device"))

    def remove(self, path: Path) -> None:
        """See Files."""
        self._note_ghosts([p for p in self.contents if p == path or is_inside(p, path)])
        super().remove(path)

    def move(self, path: Path, target: Path) -> None:
        """See Files."""
        self._note_ghosts([p for p in self.contents if is_inside(p, path)])
        super().move(path, target)

    def _note_ghosts(self, paths: list[Path]) -> None:
        for gone in paths:
            if gone in self.named:
                self.ghosts[gone] = self.durable.pop(gone, bytes(len(self.contents[gone])))

    def sync(self, path: Path, view: memoryview | None = None) -> None:  # noqa: ARG002
        """See Files."""
        if path in self.contents:
            self.durable[path] = bytes(self.contents[path])
        else:
            self.named |= self._names_in(path)
            self.ghosts = {p: data for p, data in self.ghosts.items() if p.parent != path}

    def _names_in(self, directory: Path) -> set[Path]:
        """Files and directories that are directly in a directory."""
        prefix = f"{directory}/"
        texts = [text for path in self.contents if (text := str(path)).startswith(prefix)]
        return {
            directory / name for name in {text[len(prefix) :].partition("/")[0] for text in texts}
        }

    def directories(self) -> set[Path]:
        """All directories that lead to files."""
        return {parent for path in list(self.contents) for parent in _named_places(path)[1:]}

    def replace(self, path: Path, data: bytes, *, keep: bool = False) -> None:
        """See Files."""
        self._check_space(path)
        super().replace(path, data, keep=keep)
        self.durable[path] = data
        self.named.add(path)

    def after_power_loss(self, random: Random) -> "PowerLossFiles":
        """The disk afterwards: everything synced, and random sectors of the rest."""
        left = PowerLossFiles()
        has_lost_names = False
        for path, content in self.contents.items():
            # File systems keep the order of names: those after a lost one are lost as well.
            if not self.named.issuperset(_named_places(path)):
                has_lost_names = has_lost_names or random.random() < LOST_NAME
                if has_lost_names:
                    continue
            then = self.durable.get(path, bytes(len(content)))
            if isinstance(content, bytes):
                left.contents[path] = then
                continue
            left.create(path, len(content))
            _fill(left.map(path, len(content)), bytes(content), then, random)
            left.blocks[path] = self.blocks.get(path, 0)
        for path, ghost in self.ghosts.items():
            if random.random() < 0.5:
                left.remove(path)
                left.create(path, len(ghost))
                left.map(path, len(ghost))[:] = ghost
                left.blocks[path] = len(ghost)
        left.ghosts = {}
        left.durable = {path: bytes(content) for path, content in left.contents.items()}
        left.named = {*left.contents, *left.directories()}
        left.is_full = self.is_full
        return left


@lru_cache(maxsize=4_096)
def _named_places(path: Path) -> tuple[Path, ...]:
    """A file and the directories that lead to it, apart from the outermost two."""
    return tuple(place for place in (path, *path.parents) if len(place.parts) > 2)


def _fill(view: memoryview, now: bytes, then: bytes, random: Random) -> None:
    """Fill a file with its durable content, and with some of the sectors written since."""
    share = random.random()
    view[: len(then)] = then
    for chunk in range(0, len(now), CHUNK_SIZE):
        if now[chunk : chunk + CHUNK_SIZE] == then[chunk : chunk + CHUNK_SIZE]:
            continue
        for at in range(chunk, min(chunk + CHUNK_SIZE, len(now)), SECTOR_SIZE):
            if random.random() < share:
                view[at : at + SECTOR_SIZE] = now[at : at + SECTOR_SIZE]
