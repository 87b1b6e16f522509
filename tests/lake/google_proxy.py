"""A proxy in front of fake-gcs-server that adds what deltalake needs of Google's XML API.

pyarrow asks for the JSON API, which fake-gcs-server 1.56 has. Of the XML API, which deltalake asks
for, it has lists, reads and deletions. This is added; the server decides about conditions:

    PUT /BUCKET/OBJECT               an upload of the JSON API; the server knows it of signed URLs
    x-goog-if-generation-match: N    ifGenerationMatch=N of that; the server answers 412
    start-after=NAME of a list       names up to that one are left out; the server ignores it
    404 NoSuchBucket                 instead of 500 for a list, and of 404 without a reason

Faults of `fault_proxy` happen here as well.
"""

import asyncio
import json
import re
import sys
from urllib.parse import parse_qs, urlsplit

from tests.lake.fault_proxy import Fault, Proxy, Request, answered, main, without, xml_error

JSON_API = ("/storage/", "/upload/", "/download/", "/batch/", "/_internal/")

CONTENTS = re.compile(rb"<Contents>.*?<Key>(.*?)</Key>.*?</Contents>", re.DOTALL)

REFUSED = (
    "roquet@lake.iam.gserviceaccount.com does not have storage.buckets.get access to the Google "
    "Cloud Storage bucket. Permission 'storage.buckets.get' denied on resource (or it may not "
    "exist)."
)


class GoogleProxy(Proxy):
    """The proxy, as its own process runs it."""

    condition = b"x-goog-if-generation-match:"

    async def forwarded(self, request: Request, body: bytes) -> bytes:
        """The answer of Google's store to a request."""
        if request.path.startswith(JSON_API):
            return await super().forwarded(request, body)
        if request.method == "PUT":
            return await self._uploaded(request, body)
        if request.method == "GET" and "list-type=2" in request.path:
            return await self._listed(request)
        return await super().forwarded(request, body)

    def error(self, fault: Fault, request: Request) -> bytes:
        """The answer to a request that goes wrong, in the words of the API that it asks for."""
        if fault is not Fault.FORBIDDEN or not request.path.startswith(JSON_API):
            return super().error(fault, request)
        causes = [{"message": REFUSED, "domain": "global", "reason": "forbidden"}]
        text = json.dumps({"error": {"code": 403, "message": REFUSED, "errors": causes}})
        return answered("403 Forbidden", text, "Content-Type: application/json; charset=UTF-8")

    async def _uploaded(self, request: Request, body: bytes) -> bytes:
        bucket, _, name = _target(request).removeprefix("/").partition("/")
        found = re.search(rb"(?i)\r\nx-goog-if-generation-match: *(\d+)", request.head)
        condition = f"&ifGenerationMatch={found[1].decode()}" if found else ""
        path = f"/upload/storage/v1/b/{bucket}/o?uploadType=media&name={name}{condition}"
        head = _with_line(without(request.head, self.condition), f"POST {path} HTTP/1.1")
        answer = await super().forwarded(request._replace(head=head), body)
        match _status(answer):
            case 200:
                tag, generation = (
                    re.search(rf'"{key}":"([^"]*)"'.encode(), answer)
                    for key in ("etag", "generation")
                )
                assert tag is not None
                assert generation is not None
                fields = (
                    f'ETag: "{tag[1].decode()}"',
                    f"x-goog-generation: {generation[1].decode()}",
                )
                return answered("200 OK", "", *fields)
            case 404:
                return _no_bucket()
            case 412:
                return xml_error(412, "Precondition Failed", "PreconditionFailed")
            case _:
                return answer

    async def _listed(self, request: Request) -> bytes:
        # HTTP/1.0 knows no chunks, so the body is all that follows the head.
        head = _with_line(request.head, f"GET {_target(request)} HTTP/1.0")
        answer = await super().forwarded(request._replace(head=head), b"")
        if _status(answer) == 500 and b"no bucket named" in answer:
            return _no_bucket()
        after = parse_qs(urlsplit(_target(request)).query).get("start-after", [""])[0].encode()
        body = answer.partition(b"\r\n\r\n")[2]
        listed = CONTENTS.sub(lambda each: each[0] if each[1] > after else b"", body)
        return answered("200 OK", listed.decode(), "Content-Type: application/xml")


def _target(request: Request) -> str:
    """The path and the query as they were sent."""
    return request.head.split(b" ")[1].decode("latin-1")


def _with_line(head: bytes, line: str) -> bytes:
    return line.encode("latin-1") + head[head.index(b"\r\n") :]


def _status(answer: bytes) -> int:
    return int(answer.split(b" ")[1])


def _no_bucket() -> bytes:
    return xml_error(404, "The specified bucket does not exist.", "NoSuchBucket")


if __name__ == "__main__":
    asyncio.run(main(GoogleProxy(sys.argv[1], int(sys.argv[2]))))
