"""Python code for the messages of RocketMQ 5, made by protoc from tools/protos.

python tools/generators/grpc_code.py            says which files differ
python tools/generators/grpc_code.py --write    writes them into roquet/proxy/protos

The files hold their descriptors in a pool of their own (roquet.proxy.protos.pool): the official
Python client registers the same names in protobuf's default pool, and both may be in one process.
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
NAMES = ("definition", "service")

REPLACED = (
    ("from apache.rocketmq.v2 import", "from roquet.proxy.protos import"),
    ("from google.protobuf import descriptor_pool as _descriptor_pool\n", ""),
    ("_descriptor_pool.Default()", "_POOL"),
    ("_Mapping]", "_Mapping[str, _Any]]"),
    ("from typing import ClassVar", "from typing import Any as _Any, ClassVar"),
    (
        "from google.protobuf.internal import builder as _builder\n",
        "from google.protobuf.internal import builder as _builder\n"
        "from roquet.proxy.protos.pool import POOL as _POOL\n",
    ),
)


def made() -> dict[str, str]:
    """The content of each generated file, by its name."""
    with tempfile.TemporaryDirectory() as out:
        files = [f"{PROTOS}/apache/rocketmq/v2/{name}.proto" for name in NAMES]
        include = resources.files("grpc_tools") / "_proto"
        options = [f"-I{PROTOS}", f"-I{include}", f"--python_out={out}", f"--pyi_out={out}"]
        if protoc.main(["protoc", *options, *files]):
            raise SystemExit("protoc failed (lines above)")
        made = Path(out) / "apache" / "rocketmq" / "v2"
        return {file.name: _ours(file.read_text()) for file in sorted(made.iterdir())}


def _ours(text: str) -> str:
    for theirs, ours in REPLACED:
        text = text.replace(theirs, ours)
    return text


def main() -> None:
    """Write the files, or say which differ."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--write", action="store_true")
    write = parser.parse_args().write
    differing = []
    for name, text in made().items():
        file = TARGET / name
        if not file.exists() or file.read_text() != text:
            differing.append(name)
            if write:
                file.write_text(text)
    print(f"{', '.join(differing) or 'nothing'} {'written' if write else 'differs'}")
    sys.exit(bool(differing) and not write)


if __name__ == "__main__":
    main()
