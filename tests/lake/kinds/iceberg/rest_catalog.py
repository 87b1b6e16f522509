"""A REST catalog in this process: the endpoints that pyiceberg uses, over its own SQL catalog."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from pyiceberg.catalog.rest import CreateTableRequest, TableResponse
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
)
from pyiceberg.table import CommitTableRequest

STATUS = {
    CommitFailedException: 409,
    NamespaceAlreadyExistsError: 409,
    NoSuchNamespaceError: 404,
    NoSuchTableError: 404,
}


AWAY = {"message": "away", "type": "ServiceUnavailable", "code": 503}


class RestCatalogServer(ThreadingHTTPServer):
    """The server; `loses` answers of commits that were made are 500, and all while `is_away`."""

    daemon_threads = True

    def __init__(self, root: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.catalog = SqlCatalog(
            "server", uri=f"sqlite:///{root}/server.db", warehouse=f"file://{root}/warehouse"
        )
        self.requests: list[str] = []
        self.tokens: set[str | None] = set()
        self.loses = 0
        self.is_away = False

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: RestCatalogServer

    def do_GET(self) -> None:
        self._answer({})

    def do_POST(self) -> None:
        self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def log_message(self, *_: Any) -> None:
        pass

    def _answer(self, body: dict[str, Any]) -> None:
        path = [unquote(part) for part in urlsplit(self.path).path.strip("/").split("/")]
        self.server.requests.append(f"{self.command} /{'/'.join(path)}")
        self.server.tokens.add(self.headers.get("Authorization"))
        if self.server.is_away:
            self._send(503, json.dumps({"error": AWAY}))
            return
        try:
            status, text = 200, self._result(path[1:], body)
        except tuple(STATUS) as error:
            about = {"message": str(error), "type": type(error).__name__, "code": 0}
            status, text = STATUS[type(error)], json.dumps({"error": about})
        if self.server.loses and "updates" in body:
            self.server.loses -= 1
            lost = {"message": "lost", "type": "ServerError", "code": 500}
            status, text = 500, json.dumps({"error": lost})
        self._send(status, text)

    def _send(self, status: int, text: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    def _result(self, path: list[str], body: dict[str, Any]) -> str:
        catalog = self.server.catalog
        match (self.command, path):
            case ("GET", ["config"]):
                return json.dumps({"defaults": {}, "overrides": {}})
            case ("POST", ["namespaces"]):
                catalog.create_namespace(tuple(body["namespace"]))
                return json.dumps(body)
            case ("POST", ["namespaces", space, "tables"]):
                return self._staged(space, _parsed(CreateTableRequest, {"location": None, **body}))
            case ("GET", ["namespaces", space, "tables"]):
                names = [{"namespace": [*each[:-1]], "name": each[-1]}
                         for each in catalog.list_tables(space)]  # fmt: skip
                return json.dumps({"identifiers": names})
            case ("GET", ["namespaces", space, "tables", name]):
                return _table_text(catalog.load_table((space, name)))
            case ("POST", ["namespaces", space, "tables", name]):
                request = _parsed(CommitTableRequest, body)
                named: Any = _Named((space, name))
                done = catalog.commit_table(named, request.requirements, request.updates)
                return done.model_dump_json(by_alias=True)
            case _:
                raise AssertionError((self.command, path))

    def _staged(self, space: str, request: CreateTableRequest) -> str:
        assert request.stage_create
        assert request.partition_spec is not None
        assert request.write_order is not None
        staged = self.server.catalog.create_table_transaction(
            (space, request.name),
            request.table_schema,
            request.location,
            request.partition_spec,
            request.write_order,
            request.properties,
        )
        return TableResponse(metadata=staged.table_metadata).model_dump_json(by_alias=True)


class _Named:
    """The part of a table that the SQL catalog needs for a commit."""

    def __init__(self, name: tuple[str, str]) -> None:
        self._name = name

    def name(self) -> tuple[str, str]:
        return self._name


def _parsed(model: Any, body: dict[str, Any]) -> Any:
    """A request as its model reads it from JSON, which is stricter than from Python's values."""
    return model.model_validate_json(json.dumps(body))


def _table_text(table: Any) -> str:
    return TableResponse(
        metadata=table.metadata, **{"metadata-location": table.metadata_location}
    ).model_dump_json(by_alias=True)


@contextmanager
def rest_catalog(root: Path) -> Iterator[RestCatalogServer]:
    """A server of the catalog in a directory."""
    root.mkdir(parents=True, exist_ok=True)
    server = RestCatalogServer(root)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        server.catalog.close()
