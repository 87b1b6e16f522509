"""Descriptors and types of RocketMQ 5's messages, made by protoc from tools/protos.

python tools/generators/grpc_code.py            says which files differ
python tools/generators/grpc_code.py --write    writes them into roquet/proxy/protos
"""

import argparse
import sys
import tempfile
from importlib import resources
from pathlib import Path

from grpc_tools import protoc

import architecture_map

PROTOS = Path(__file__).parents[1] / "protos"
TARGET = architecture_map.PACKAGE / "proxy" / "protos"
NAMES = ("definition", "service", "admin")

DESCRIPTORS = "rocketmq_v2.desc"
"""All files with those that they import, as protobuf's FileDescriptorSet."""

REPLACED = (
    ("from apache.rocketmq.v2 import", "from roquet.proxy.protos import"),
    ("_Mapping]", "_Mapping[str, _Any]]"),
    ("from typing import ClassVar", "from typing import Any as _Any, ClassVar"),
)
"""Forms that mypy's strict checks do not take."""


def made() -> dict[str, bytes]:
    """The content of each generated file, by its name."""
    with tempfile.TemporaryDirectory() as out:
        files = [f"{PROTOS}/apache/rocketmq/v2/{name}.proto" for name in NAMES]
        include = resources.files("grpc_tools") / "_proto"
        descriptors = f"--descriptor_set_out={out}/{DESCRIPTORS}"
        options = [f"-I{PROTOS}", f"-I{include}", f"--pyi_out={out}", "--include_imports"]
        if protoc.main(["protoc", *options, descriptors, *files]):
            raise SystemExit("protoc failed (lines above)")
        types = sorted(Path(out).rglob("*.pyi"))
        found = {file.name: _types(file.read_text()).encode() for file in types}
        return {**found, DESCRIPTORS: (Path(out) / DESCRIPTORS).read_bytes()}


def _types(text: str) -> str:
    for theirs, ours in REPLACED:
        text = text.replace(theirs, ours)
    return text


def differing() -> list[str]:
    """Names of the files that are not as they would be made."""
    found = made().items()
    files = {name: TARGET / name for name, _ in found}
    return [
        name
        for name, content in found
        if not files[name].exists() or files[name].read_bytes() != content
    ]


def main() -> None:
    """Write the files, or say which differ."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--write", action="store_true")
    if parser.parse_args().write:
        for name, content in made().items():
            (TARGET / name).write_bytes(content)
        return
    names = differing()
    print(f"{', '.join(names) or 'nothing'} differs")
    sys.exit(bool(names))


if __name__ == "__main__":
    main()
