"""An S3 server for benchmarks: versitygw when it is on the path, else moto's.

moto serves all requests from one Python process, which is the slower side of every transfer. A
server of Go's is built by `go install github.com/versity/versitygw/cmd/versitygw@latest`.
"""

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

from bench.lib.kill_store import BUCKET, CREDENTIALS, ObjectServer

PROGRAM = "versitygw"


class FileServer(ObjectServer):
    """versitygw: an S3 server whose objects are files of a directory."""

    READY = "service listening"

    def _command(self, port: int, folder: Path) -> list[str]:
        root = folder / "objects"
        root.mkdir()
        keys = ["--access", CREDENTIALS["AWS_ACCESS_KEY_ID"]]
        keys += ["--secret", CREDENTIALS["AWS_SECRET_ACCESS_KEY"]]
        program = shutil.which(PROGRAM) or PROGRAM
        return [program, "--port", f"127.0.0.1:{port}", *keys, "posix", str(root)]


def server_name() -> str:
    """The name of the server that `served_objects` starts."""
    return PROGRAM if shutil.which(PROGRAM) else "moto"


@contextlib.contextmanager
def served_objects(folder: Path) -> Iterator[tuple[str, int]]:
    """The URL of an empty bucket, and the server's process, until the block ends.

    The environment of this process, and of those that it starts, names the server.
    """
    folder.mkdir(parents=True, exist_ok=True)
    server = (FileServer if shutil.which(PROGRAM) else ObjectServer)(folder)
    try:
        yield f"s3://{BUCKET}", server.pid
    finally:
        server.close()
