"""Object location: the URL of a table in an object store, and the options to reach it.

    parse_location("s3://lake/orders", {"AWS_REGION": "eu-west-1"}, os.environ)
    parse_location("abfss://lake@account.dfs.core.windows.net/orders", {}, os.environ)
    parse_location("gs://lake/orders", {}, os.environ)

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

ENDPOINT: Final = "AWS_ENDPOINT_URL"
ALLOW_HTTP: Final = "AWS_ALLOW_HTTP"
REGION: Final = "AWS_REGION"

ACCOUNT: Final = "AZURE_STORAGE_ACCOUNT_NAME"
EMULATOR: Final = "AZURE_STORAGE_USE_EMULATOR"
ACCOUNT_KEYS: Final = ("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_ACCESS_KEY")
SAS_TOKENS: Final = ("AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_SAS_KEY")

GOOGLE_CREDENTIALS: Final = "GOOGLE_APPLICATION_CREDENTIALS"
GOOGLE_EMULATOR: Final = "STORAGE_EMULATOR_HOST"
"""A server instead of Google's, which gets no credentials; Google's own libraries know the name."""
PYARROW_EMULATOR: Final = "CLOUD_STORAGE_EMULATOR_ENDPOINT"
"""Google's C++ library, which is in pyarrow, knows this one, and it wins over any argument."""


class ObjectProvider(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of object store: how its URLs, options and credentials are written."""

    scheme: str
    """The scheme of the URLs that are used."""
    aliases: tuple[str, ...] = ()
    """Other schemes of the same store."""
    place: str
    """The pattern of a URL, for texts."""
    bucket: re.Pattern[str]
    """Names of buckets."""
    bucket_word: str = "bucket"
    options: Mapping[str, tuple[str, ...]] = {}
    """Options, with their names in the environment; the first one that is set counts."""
    endpoint: str = ""
    """The option that names a server other than the provider's own; empty without one."""
    condition: str = "If-None-Match"
    """The condition of a request that creates an object, and replaces none."""
    credentials: tuple[str, ...]
    """Names that the environment of each process gives its object store; they are never options.
    The first ones are those that texts ask to check."""
    checked: int = 3
    """How many of the credentials texts ask to check."""

    @property
    def credentials_text(self) -> str:
        """Names to check where access is refused."""
        return ", ".join(self.credentials[: self.checked])


S3: Final = ObjectProvider(
    scheme="s3",
    aliases=("s3a",),
    place="s3://BUCKET/PATH",
    bucket=re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", re.ASCII),
    options={
        ENDPOINT: ("AWS_ENDPOINT_URL_S3", ENDPOINT, "AWS_ENDPOINT"),
        ALLOW_HTTP: (ALLOW_HTTP,),
        REGION: (REGION, "AWS_DEFAULT_REGION"),
    },
    endpoint=ENDPOINT,
    credentials=(
        *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"),
        *("AWS_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE"),
    ),
)

AZURE: Final = ObjectProvider(
    scheme="abfss",
    aliases=("abfs",),
    place="abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH",
    bucket=re.compile(r"[a-z0-9][a-z0-9-]{1,61}[a-z0-9]", re.ASCII),
    bucket_word="container",
    options={ACCOUNT: (ACCOUNT, "AZURE_STORAGE_ACCOUNT"), EMULATOR: (EMULATOR,)},
    credentials=(
        *(ACCOUNT_KEYS[0], SAS_TOKENS[0], "AZURE_CLIENT_SECRET"),
        *(ACCOUNT_KEYS[1], SAS_TOKENS[1], "AZURE_CLIENT_ID", "AZURE_TENANT_ID"),
        "AZURE_FEDERATED_TOKEN_FILE",
    ),
)

GOOGLE: Final = ObjectProvider(
    scheme="gs",
    aliases=("gcs",),
    place="gs://BUCKET/PATH",
    bucket=re.compile(r"[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]", re.ASCII),
    options={GOOGLE_EMULATOR: (GOOGLE_EMULATOR, PYARROW_EMULATOR)},
    endpoint=GOOGLE_EMULATOR,
    condition="x-goog-if-generation-match",
    credentials=(
        *(GOOGLE_CREDENTIALS, "GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_PATH"),
        "GOOGLE_SERVICE_ACCOUNT_KEY",
    ),
    checked=1,  # pyarrow knows no other
)

PROVIDERS: Final[Mapping[str, ObjectProvider]] = MappingProxyType(
    {name: each for each in (S3, AZURE, GOOGLE) for name in (each.scheme, *each.aliases)}
)
"""The object stores that tables may lie in, by the schemes of their URLs."""

_KEY: Final = re.compile(r"[\w.=@+-]+(/[\w.=@+-]+)*", re.ASCII)
"""Names that every library spells alike; others are escaped by some of them and not by others."""

_ENDPOINT: Final = re.compile(
    r"https?://([\w.-]+|\[[0-9a-f:.]+\])(:\d{1,5})?/?", re.ASCII | re.IGNORECASE
)

_ACCOUNT: Final = re.compile(r"[a-z0-9]{3,24}", re.ASCII)
_ACCOUNT_HOST: Final = re.compile(r"([a-z0-9]{3,24})\.(dfs|blob)\.core\.windows\.net", re.ASCII)

_TRUE: Final = frozenset({"1", "true", "yes", "on"})


class ObjectLocation(msgspec.Struct, frozen=True):
    """A prefix of a bucket; `options` holds no secrets."""

    url: str
    """Without a slash at the end."""
    options: Mapping[str, str] = {}

    def __str__(self) -> str:
        return self.url

    @property
    def provider(self) -> ObjectProvider:
        """The kind of the store."""
        return provider_of(self.url)

    @property
    def key(self) -> str:
        """The bucket and the prefix, as file systems name them."""
        return key_of(self.url)

    @property
    def bucket(self) -> str:
        """The bucket's name."""
        return self.key.partition("/")[0]

    @property
    def endpoint(self) -> str:
        """The URL of a server other than the provider's own; empty for the provider's own."""
        return self.options.get(self.provider.endpoint, "")

    @property
    def server(self) -> str:
        """The store's address, for texts."""
        provider = self.provider
        if provider is AZURE:
            return f"Azure account {self.options.get(ACCOUNT, '')}".rstrip()
        return self.endpoint or ("Google Cloud Storage" if provider is GOOGLE else "AWS")

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


def storage_of(location: TableLocation) -> Mapping[str, str]:
    """The options of the object store that a table lies in; empty for a directory."""
    return {} if isinstance(location, Path) else location.options


def is_object_url(target: str) -> bool:
    """Whether a target is a URL other than that of a file; one letter is a Windows drive."""
    scheme = target.partition("://")[0] if "://" in target else ""
    return len(scheme) > 1 and scheme.lower() != "file"


def provider_of(url: str) -> ObjectProvider:
    """The kind of the store of a location's or a file's URL."""
    return PROVIDERS[url.partition("://")[0]]


def key_of(url: str) -> str:
    """The bucket and the path of a URL, as file systems name them."""
    host, slash, path = url.partition("://")[2].partition("/")
    return f"{host.partition('@')[0]}{slash}{path}"


def parse_location(
    target: str, storage: Mapping[str, str], environ: Mapping[str, str]
) -> ObjectLocation:
    """The location of an object store's URL; `storage` are the user's options.

    Raises ConfigError for URLs and options that cannot be used. Its text never repeats a secret.
    """
    name, _, rest = target.partition("://")
    provider = PROVIDERS.get(name.lower())
    if provider is None:
        places = ", ".join(each.place for each in (S3, AZURE))
        raise ConfigError(
            f"archives go to directories, to {places} and to {GOOGLE.place}; "
            f"{name}:// is none of these"
        )
    host, _, key = rest.partition("/")
    key = key.strip("/")
    bucket, _, account = host.partition("@") if provider is AZURE else (host, "", "")
    if "@" in bucket or (":" in bucket and "@" in rest):
        raise ConfigError(
            "the URL of the table holds a user or a password, which others would see: leave it "
            f"out, and set {provider.credentials[0]} and {provider.credentials[1]} in the "
            "environment"
        )
    if not provider.bucket.fullmatch(bucket) or "?" in key or "#" in key:
        # Not repeated: a signature or a password may be in it.
        raise ConfigError(f"the URL of the table is not {provider.place}")
    options = storage_options(storage, environ, provider)
    if provider is AZURE:
        options[ACCOUNT] = _account(account, options)
        host = f"{bucket}@{options[ACCOUNT]}.dfs.core.windows.net"
    if not _KEY.fullmatch(key) or not {".", ".."}.isdisjoint(key.split("/")):
        raise ConfigError(
            f"{target!r}: the path of a table in an object store consists of names with letters, "
            "digits and any of ._=@+-, separated by single slashes"
        )
    return ObjectLocation(f"{provider.scheme}://{host}/{key}", options)


def storage_options(
    storage: Mapping[str, str], environ: Mapping[str, str], provider: ObjectProvider = S3
) -> dict[str, str]:
    """The options of an object store: the user's, else those of the environment.

    Raises ConfigError for unknown names, for credentials and for an endpoint that cannot be used.
    """
    chosen = {name.upper(): value for name, value in storage.items()}
    for name in chosen:
        if any(name in each.credentials for each in PROVIDERS.values()):
            raise ConfigError(
                f"--storage-option {name}: every user of the machine sees the words of a command; "
                f"set {name} in the environment of the driver and of the workers"
            )
        if name not in provider.options:
            raise ConfigError(
                f"no storage option {name!r} of {provider.scheme}://"
                f"{suggest(name, provider.options)}"
            )
    for name, aliases in provider.options.items():
        found = next((environ[alias] for alias in aliases if environ.get(alias)), None)
        if found is not None:
            chosen.setdefault(name, found)
    _check_endpoint(chosen)
    if GOOGLE_EMULATOR in chosen:
        chosen[GOOGLE_EMULATOR] = emulator_url(chosen[GOOGLE_EMULATOR])
    return chosen


def _account(host: str, options: Mapping[str, str]) -> str:
    """The account of an Azure URL, whose host may be missing; it is not repeated in errors."""
    if not host:
        name = options.get(ACCOUNT, "")
        if not _ACCOUNT.fullmatch(name):
            raise ConfigError(
                f"the URL of the table names no account: give {AZURE.place}, or set {ACCOUNT}"
            )
        return name
    match = _ACCOUNT_HOST.fullmatch(host)
    if match is None:
        raise ConfigError(f"the URL of the table is not {AZURE.place}")
    return match[1]


def emulator_url(address: str) -> str:
    """The URL of an emulator of Google's store; ConfigError for what is no URL and no HOST:PORT."""
    url = address if "://" in address else f"http://{address}"
    if "@" in url:
        raise ConfigError(f"{GOOGLE_EMULATOR} holds a user or a password: leave it out")
    if not _ENDPOINT.fullmatch(url):
        raise ConfigError(f"{GOOGLE_EMULATOR} is not http://HOST:PORT")
    return url.removesuffix("/")


def is_true(options: Mapping[str, str], name: str) -> bool:
    """Whether an option is switched on."""
    return options.get(name, "").strip().lower() in _TRUE


def _check_endpoint(options: Mapping[str, str]) -> None:
    endpoint = options.get(ENDPOINT)
    if endpoint is None:
        return
    if "@" in endpoint:
        raise ConfigError(f"{ENDPOINT} holds a user or a password: leave it out")
    if not _ENDPOINT.fullmatch(endpoint):
        raise ConfigError(f"{ENDPOINT} is not http://HOST:PORT or https://HOST")
    if endpoint.lower().startswith("http:") and not is_true(options, ALLOW_HTTP):
        raise ConfigError(
            f"{ENDPOINT} is {endpoint}, without encryption: if that is meant, set {ALLOW_HTTP}=true"
        )
