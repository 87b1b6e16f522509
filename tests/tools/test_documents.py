"""The documents: what they link to is there, and their Python is Python."""

import ast
import re
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import unquote

import pytest

ROOT: Final = Path(__file__).parents[2]

DOCUMENTS: Final = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]

LINK: Final = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)(?:\s+\"[^\"]*\")?\)")
HEADING: Final = re.compile(r"#{1,6}\s+(.+?)\s*#*$")
CODE: Final = re.compile(r"`[^`]*`")
ELSEWHERE: Final = re.compile(r"[a-z]+:", re.IGNORECASE)
"""https: and mailto: are not ours to look at."""


class Block(NamedTuple):
    """Code between two fences."""

    language: str
    line: int
    text: str


@cache
def parts(document: Path) -> tuple[list[str], list[Block]]:
    """The lines of a document that are text, and its blocks of code."""
    prose: list[str] = []
    blocks: list[Block] = []
    fence, inside = "", Block("", 0, "")
    for number, line in enumerate(document.read_text("utf-8").splitlines(), 1):
        start = line.strip()
        if fence:
            if start == fence:
                blocks.append(inside)
                fence = ""
            else:
                inside = inside._replace(text=f"{inside.text}{line}\n")
        elif start.startswith("```"):
            fence, inside = "```", Block(start.strip("`").strip(), number + 1, "")
        else:
            prose.append(line)
    assert not fence, f"{document}: the block from line {inside.line} on has no end"
    return prose, blocks


def anchors(document: Path) -> set[str]:
    """What a link into a document may name: its headings, as GitHub and others write them."""
    anchors: set[str] = set()
    for line in parts(document)[0]:
        if heading := HEADING.match(line):
            words = re.sub(r"[^\w\- ]", "", heading[1].lower())
            name = words.replace(" ", "-")
            anchors.add(
                next(n for n in (name, *(f"{name}-{i}" for i in range(1, 99))) if n not in anchors)
            )
    return anchors


def links(document: Path) -> list[str]:
    """The targets of a document's links, but for those in code."""
    text = "\n".join(CODE.sub("`code`", line) for line in parts(document)[0])
    return LINK.findall(text)


def fault(document: Path, link: str) -> str | None:
    """What is wrong with a link; None when it leads somewhere, or out of the project."""
    if ELSEWHERE.match(link):
        return None
    path, _, anchor = link.partition("#")
    target = (document.parent / unquote(path)).resolve() if path else document
    if not target.is_relative_to(ROOT):
        return "leads out of the project"
    if not target.exists():
        return "leads nowhere"
    if anchor and target.suffix == ".md" and anchor not in anchors(target):
        return "names no heading"
    return None


def blocks_of_python() -> list[tuple[str, Block]]:
    """Each with its place, for people."""
    return [
        (f"{document.relative_to(ROOT)}:{block.line}", block)
        for document in DOCUMENTS
        for block in parts(document)[1]
        if block.language in ("python", "py")
    ]


def test_every_link_between_documents_leads_somewhere() -> None:
    wrong = [
        f"{document.relative_to(ROOT)}: {link} {reason}"
        for document in DOCUMENTS
        for link in links(document)
        if (reason := fault(document, link))
    ]
    assert wrong == []


def test_python_in_documents_compiles() -> None:
    blocks = blocks_of_python()
    assert blocks, "no document shows any Python: is the search wrong?"
    wrong = []
    for place, block in blocks:
        try:
            ast.parse(block.text)  # which takes `await` and `return` without a function around them
        except SyntaxError as error:
            wrong.append(f"{place}: {error}")
    assert wrong == []


def test_a_stream_that_a_document_starts_is_waited_for() -> None:
    """A program that ends right after `start()` writes nothing, and says nothing."""
    started = [
        (place, block.text)
        for place, block in blocks_of_python()
        if ".writeStream" in block.text and ".start(" in block.text
    ]
    assert started
    assert [place for place, text in started if "awaitTermination()" not in text] == []


def sections(document: Path, heading: str) -> dict[str, str]:
    """Texts of a document by their headings, of those below another heading."""
    text = document.read_text("utf-8").partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    parts = text.split("\n### ")[1:]
    return {title: body for title, _, body in (part.partition("\n") for part in parts)}


def named_but_absent(document: Path, text: str) -> list[str]:
    """Names in code that none of the files linked in the same paragraph holds."""
    absent = []
    for step in re.split(r"\n(?=\d+\.|\n)", text):
        files = [document.parent / link for link in LINK.findall(step)]
        source = "".join(path.read_text("utf-8") for path in files)
        names = re.findall(r"`([A-Z_a-z]\w*)`", step)
        absent += [name for name in names if files and not re.search(rf"\b{name}\b", source)]
    return absent


def test_the_walks_lead_from_file_to_file() -> None:
    document = ROOT / "ARCHITECTURE.md"
    walks = sections(document, "Four walks")
    assert [int(n) for title in walks for n in re.findall(r"in (\d+) steps", title)] == [
        12,
        9,
        9,
        8,
    ]
    for title, text in walks.items():
        steps = re.findall(r"^(\d+)\. \[[^]]+\]\((?:src|examples)/", text, re.MULTILINE)
        assert [int(n) for n in steps] == [*range(1, len(steps) + 1)]
        assert f"in {len(steps)} steps" in title
        assert named_but_absent(document, text) == []


def test_the_recipes_name_files_and_what_is_in_them() -> None:
    document = ROOT / "CONTRIBUTING.md"
    recipes = sections(document, "Recipes")
    assert [*recipes] == ["A request code", "A balance strategy", "A CLI command", "A table kind"]
    for text in recipes.values():
        assert len(LINK.findall(text)) > 6
        assert named_but_absent(document, text) == []


def test_the_index_names_every_page() -> None:
    index = ROOT / "docs" / "README.md"
    named = {(index.parent / link.partition("#")[0]).resolve() for link in links(index)}
    pages = {page for page in DOCUMENTS if page.is_relative_to(index.parent)} - {index}
    assert pages - named == set()


@pytest.mark.parametrize(
    ("link", "reason"),
    [
        ("CHANGELOG.md", None),
        ("CHANGELOG.md#changelog", None),
        ("https://example.com/nothing", None),
        ("NOTHING.md", "leads nowhere"),
        ("CHANGELOG.md#nothing", "names no heading"),
        ("../elsewhere.md", "leads out of the project"),
    ],
)
def test_a_link_is_judged(link: str, reason: str | None) -> None:
    assert fault(ROOT / "README.md", link) == reason


def test_links_in_code_are_no_links(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "`[a](b)` and [c](d)\n```python\n[e](f)\n```\n## One: `two`!\n## Same\n## Same\n"
    )
    assert links(page) == ["d"]
    assert anchors(page) == {"one-two", "same", "same-1"}
