"""Object location: the URL of a table in an object store, and the options to reach it.

    parse_location("s3://lake/orders", {"AWS_REGION": "eu-west-1"}, os.environ)

Spark's workers get a location as a part of their tasks, so it holds nothing secret. Credentials
come from the environment, a profile or a role of the machine, and each process finds its own.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

import msgspec

from roquet.model.errors import ConfigError
from roquet.model.settings import suggest

SCHEMES: Final[Mapping[str, str]] = MappingProxyType({"s3": "s3", "s3a": "s3"})
"""URL schemes of the object stores that tables may lie in, and the scheme that is used for each."""

ENDPOINT: Final = "AWS_ENDPOINT_URL"
ALLOW_HTTP: Final = "AWS_ALLOW_HTTP"
REGION: Final = "AWS_REGION"

OPTIONS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        ENDPOINT: ("AWS_ENDPOINT_URL_S3", ENDPOINT, "AWS_ENDPOINT"),
        ALLOW_HTTP: (ALLOW_HTTP,),
        REGION: (REGION, "AWS_DEFAULT_REGION"),
    }
)
"""Options of an object store, with their names in the environment; the first one that is set
counts, as in the AWS tools."""

CREDENTIALS: Final = (
    *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"),
    *("AWS_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE"),
)
"""Names that the environment of each process gives its object store; they are never options."""

_BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", re.ASCII)
_KEY: Final = re.compile(r"[\w.=@+-]+(/[\w.=@+-]+)*", re.ASCII)
"""Names that every library spells alike; others are escaped by some of them and not by others."""

_ENDPOINT: Final = re.compile(
    r"https?://([\w.-]+|\[[0-9a-f:.]+\])(:\d{1,5})?/?", re.ASCII | re.IGNORECASE
)

_TRUE: Final = frozenset({"1", "true", "yes", "on"})


class ObjectLocation(msgspec.Struct, frozen=True):
    """A prefix of a bucket; `options` holds no secrets."""

    url: str
    """Without a slash at the end."""
    options: Mapping[str, str] = {}

    def __str__(self) -> str:
        return self.url

    @property
    def key(self) -> str:
        """The bucket and the prefix, as file systems name them."""
        return self.url.partition("://")[2]

    @property
    def bucket(self) -> str:
        """The bucket's name."""
        return self.key.partition("/")[0]

    @property
    def server(self) -> str:
        """The store's address, for texts."""
        return self.options.get(ENDPOINT, "AWS")

    def file(self, path: str) -> str:
        """The URL of a file of the table."""
        return f"{self.url}/{path}"


class ObjectDirectory(msgspec.Struct, frozen=True):
    """Where the tasks of one attempt upload files: the days of the table itself."""

    location: ObjectLocation
    name: str
    """The attempt's name."""


TableLocation = Path | ObjectLocation
"""Where a table lies: a directory that the driver and all workers see, or an object store."""

StagingDirectory = Path | ObjectDirectory
"""Where the tasks of one attempt write their files."""


def is_object_url(target: str) -> bool:
    """Whether a target is a URL other than that of a file; one letter is a Windows drive."""
    scheme = target.partition("://")[0] if "://" in target else ""
    return len(scheme) > 1 and scheme.lower() != "file"


def parse_location(
    target: str, storage: Mapping[str, str], environ: Mapping[str, str]
) -> ObjectLocation:
    """The location of an object store's URL; `storage` are the user's options.

    Raises ConfigError for URLs and options that cannot be used. Its text never repeats a secret.
    """
    name, _, rest = target.partition("://")
    scheme = SCHEMES.get(name.lower())
    if scheme is None:
        raise ConfigError(
            f"archives go to directories and to s3://BUCKET/PATH; {name}:// is none of these"
        )
    bucket, _, key = rest.partition("/")
    key = key.strip("/")
    if "@" in bucket or (":" in bucket and "@" in rest):
        raise ConfigError(
            "the URL of the table holds a user or a password, which others would see: leave it "
            f"out, and set {CREDENTIALS[0]} and {CREDENTIALS[1]} in the environment"
        )
    if not _BUCKET.fullmatch(bucket) or "?" in key or "#" in key:
        # Not repeated: a signature or a password may be in it.
        raise ConfigError(f"the URL of the table is not {scheme}://BUCKET/PATH")
    if not _KEY.fullmatch(key) or not {".", ".."}.isdisjoint(key.split("/")):
        raise ConfigError(
            f"{target!r}: the path of a table in an object store consists of names with letters, "
            "digits and any of ._=@+-, separated by single slashes"
        )
    return ObjectLocation(f"{scheme}://{bucket}/{key}", storage_options(storage, environ))


def storage_options(storage: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """The options of an object store: the user's, else those of the environment.

    Raises ConfigError for unknown names, for credentials and for an endpoint that cannot be used.
    """
    chosen = {name.upper(): value for name, value in storage.items()}
    for name in chosen:
        if name in CREDENTIALS:
            raise ConfigError(
                f"--storage-option {name}: every user of the machine sees the words of a command; "
                f"set {name} in the environment of the driver and of the workers"
            )
        if name not in OPTIONS:
            raise ConfigError(f"no storage option {name!r}{suggest(name, OPTIONS)}")
    for name, aliases in OPTIONS.items():
        found = next((environ[alias] for alias in aliases if environ.get(alias)), None)
        if found is not None:
            chosen.setdefault(name, found)
    _check_endpoint(chosen)
    return chosen


def is_http_allowed(options: Mapping[str, str]) -> bool:
    """Whether connections without encryption are allowed."""
    return options.get(ALLOW_HTTP, "").strip().lower() in _TRUE


def _check_endpoint(options: Mapping[str, str]) -> None:
    endpoint = options.get(ENDPOINT)
    if endpoint is None:
        return
    if "@" in endpoint:
        raise ConfigError(f"{ENDPOINT} holds a user or a password: leave it out")
    if not _ENDPOINT.fullmatch(endpoint):
        raise ConfigError(f"{ENDPOINT} is not http://HOST:PORT or https://HOST")
    if endpoint.lower().startswith("http:") and not is_http_allowed(options):
        raise ConfigError(
            f"{ENDPOINT} is {endpoint}, without encryption: if that is meant, set {ALLOW_HTTP}=true"
        )
