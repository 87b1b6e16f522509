"""Iceberg catalogs: the one that a user names, or an SQLite file in the table's directory.

    parse_catalog(["https://catalog.example.com", "warehouse=lake"])

A catalog is named by its URI, by `glue`, or by its name in pyiceberg's configuration (the file
`.pyiceberg.yaml`, variables PYICEBERG_CATALOG__NAME__…), which is where secrets belong.
"""

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from roquet.lake.kinds.iceberg.table_place import local_path
from roquet.lake.objects.object_location import ENDPOINT, REGION, ObjectLocation, TableLocation
from roquet.lake.objects.object_store import explanation, retry_strategy
from roquet.lake.table import TableDamaged
from roquet.model.errors import ConfigError, RoquetError
from roquet.model.settings import suggest

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.typedef import Identifier

NAMESPACE: Final = "roquet"
"""The namespace of tables that a user has not named."""

CATALOG_NAME: Final = "roquet"
"""The name of a catalog that a user has not named, in pyiceberg's configuration and in SQL."""

NAME: Final = "name"
"""Key of a catalog's name among its options; pyiceberg has no option of that name."""

GLUE: Final = "glue"

WAREHOUSE: Final = "warehouse"

IO_OPTIONS: Final[Mapping[str, str]] = MappingProxyType(
    {ENDPOINT: "s3.endpoint", REGION: "s3.region"}
)
"""pyiceberg's names of our options; it has credentials from the environment itself."""

RETRIES: Final = "s3.retry-strategy-impl"
"""pyiceberg's option for retries, of which it makes few without one."""

REGION_DEFAULT: Final = "us-east-1"
"""Without a region pyiceberg asks AWS, whatever the endpoint is."""

CATALOG_PACKAGES: Final = frozenset(
    {"boto3", "botocore", "hive_metastore", "pyiceberg", "requests", "sqlalchemy", "thrift"}
)
"""Packages whose errors are those of a catalog."""

SECRET_PARTS: Final = (
    *("access-key", "account-key", "api-key", "apikey", "authorization", "connection-string"),
    *("cookie", "credential", "passphrase", "passwd", "password", "private-key", "secret"),
    *("signature", "token"),
)
"""Parts of the names of catalog options, and of parameters of a URI, whose values are secret."""

SECRET_PARAMETERS: Final = frozenset({"key", "pass", "pwd", "sig"})
"""Further such parameters of a URI."""

KERBEROS_PACKAGES: Final = frozenset({"kerberos", "puresasl", "thrift_sasl"})
"""Packages that a Hive metastore with Kerberos needs."""

_URI: Final = re.compile(r"[a-z][a-z0-9+.-]*://", re.ASCII | re.IGNORECASE)
_NAME: Final = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)


class CatalogFailed(RoquetError):
    """A catalog that refused, failed or did not answer."""


def parse_catalog(texts: Sequence[str] | None, option: str = "--catalog") -> dict[str, str]:
    """The options of a catalog from what a user wrote: a URI, a name, or KEY=VALUE texts.

    `glue` is the AWS Glue Data Catalog unless it is configured as something else. Raises
    ConfigError, which repeats no value, for other texts and for two names.
    """
    options = dict[str, str]()
    for text in (each.strip() for each in texts or ()):
        key, equals, value = text.partition("=")
        if _URI.match(text):
            key, value = "uri", text
        elif not equals and _NAME.fullmatch(text):
            key, value = NAME, text
        elif not equals or not key.strip():
            raise ConfigError(f"{option}: give a URI, a catalog's name, or NAME=VALUE")
        if key.strip() in options:
            raise ConfigError(f"{option}: {key.strip()} is given twice")
        options[key.strip()] = value.strip()
    return options


def check_catalog(root: ObjectLocation, catalog: Mapping[str, str]) -> None:
    """Raise ConfigError without a catalog: an object store is no place for an SQLite file."""
    if not catalog:
        raise ConfigError(
            f"an Iceberg table in {root} needs a catalog elsewhere: --catalog https://CATALOG, "
            "--catalog glue, --catalog sqlite:///FILE, or a name in .pyiceberg.yaml"
        )


def catalog_of(root: TableLocation, options: Mapping[str, str]) -> "Catalog":
    """The catalog with these options; without options the SQLite catalog of the directory."""
    check_no_secrets(options)
    if isinstance(root, ObjectLocation):
        return _load({**_io_options(root.options), WAREHOUSE: root.url}, options)
    home = f"file://{root.resolve()}"
    if options:
        local_path(options.get(WAREHOUSE, ""))
        return _load({WAREHOUSE: home}, options)
    mark = root.resolve() / "catalog.db"
    return _load({}, {"type": "sql", "uri": f"sqlite:///{mark}", WAREHOUSE: home})


def _io_options(storage: Mapping[str, str]) -> dict[str, str]:
    """Pyiceberg's options to reach S3."""
    known = {IO_OPTIONS[name]: storage[name] for name in IO_OPTIONS if name in storage}
    known.setdefault(IO_OPTIONS[REGION], REGION_DEFAULT)
    return known | {RETRIES: f"{retry_strategy.__module__}.{retry_strategy.__name__}"}


def location_in_catalog(name: str, options: Mapping[str, str], storage: Mapping[str, str]) -> str:
    """Location of a table NAMESPACE.NAME of a catalog; ConfigError for a table it does not have."""
    from pyiceberg.exceptions import NoSuchTableError

    check_installed()
    check_no_secrets(options)
    opened = _load(_io_options(storage), options)
    with explained_catalog(Path(name), is_reader=True), closing(opened) as catalog:
        try:
            return catalog.load_table(name).location()
        except NoSuchTableError:
            listed = (".".join(each) for each in catalog.list_tables(name.rpartition(".")[0]))
            hint = suggest(name, listed)
    raise ConfigError(f"the catalog has no table {name!r}{hint}")


def _load(known: Mapping[str, str], options: Mapping[str, str]) -> "Catalog":
    """The catalog with the user's options over `known` ones; ConfigError for one there is not."""
    from pyiceberg.catalog import load_catalog
    from pyiceberg.exceptions import NotInstalledError
    from pyiceberg.utils.config import Config

    name = options.get(NAME, CATALOG_NAME)
    configured: dict[str, Any] = {**(Config().get_catalog_config(name) or {})}
    rest = {key: value for key, value in options.items() if key != NAME}
    if not configured and name == GLUE:
        rest.setdefault("type", GLUE)
    if not configured and NAME in options and not rest.keys() & {"uri", "type"}:
        raise ConfigError(
            f"--catalog {name}: no such catalog is configured: give its URI, or describe it in "
            f".pyiceberg.yaml or by PYICEBERG_CATALOG__{name.upper().replace('-', '_')}__URI"
        )
    try:
        # What the user has configured counts more than what is derived from the target.
        derived = {key: value for key, value in known.items() if key not in configured}
        chosen = {**configured, **rest}
        if str(chosen.get("type") or chosen.get("uri")).lower().startswith(("rest", "http")):
            derived.pop(WAREHOUSE, None)  # there it is a name, which the server gives
        catalog = load_catalog(name, **{**derived, **configured, **rest})
    except (NotInstalledError, ModuleNotFoundError) as error:
        raise ConfigError(_missing_text(error)) from error
    except ValueError as error:
        raise ConfigError(f"--catalog: {_first_line(error)}") from error
    if is_hive(catalog):
        use_calls_of_hive_4(catalog)
        _silence_thrift()
    return catalog


def _silence_thrift() -> None:
    """Leave out thrift's lines about errors that it raises, too, unless its level has been set."""
    logger = logging.getLogger("thrift.transport")
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.CRITICAL)


def _missing_text(error: Exception) -> str:
    """The sentence that says which extra of pyiceberg a catalog needs."""
    missing = error if isinstance(error, ImportError) else error.__cause__
    named = re.search(r"pyiceberg\[[\w-]+\]", str(error))
    extra = named.group() if named else "pyiceberg[sql-postgres]"
    package = (getattr(missing, "name", None) or "").partition(".")[0]
    if package in KERBEROS_PACKAGES:
        extra = "pyiceberg[hive-kerberos]"  # pyiceberg names the one without
    return f"this catalog needs more of pyiceberg: pip install '{extra}'"


def check_no_secrets(options: Mapping[str, str]) -> None:
    """ConfigError, which does not repeat them, for secrets among the options of a catalog."""
    for name, value in options.items():
        if _is_secret_name(name) or ("://" in value and _has_secret(value)):
            catalog = options.get(NAME, CATALOG_NAME).upper().replace("-", "_")
            variable = name.upper().replace(".", "__").replace("-", "_")
            raise ConfigError(
                f"--catalog {name} holds a secret: every user of the machine sees the words of a "
                f"command; set PYICEBERG_CATALOG__{catalog}__{variable} in the environment"
            )


def _is_secret_name(name: str) -> bool:
    return any(part in name.lower().replace("_", "-") for part in SECRET_PARTS)


def _has_secret(uri: str) -> bool:
    """Whether a URI holds a user, or a parameter whose name says that its value is secret."""
    parameters = [each.partition("=")[0] for each in re.split("[?&;#]", uri)[1:]]
    return "@" in uri or any(
        _is_secret_name(each) or each.lower() in SECRET_PARAMETERS for each in parameters
    )


@contextmanager
def explained_catalog(root: TableLocation, *, is_reader: bool = False) -> Iterator[None]:
    """Give errors of a catalog or an object store a sentence; those of a directory pass.

    A refused change and one of unknown outcome pass, too. What became of a commit is said to a
    writer alone.
    """
    from pyiceberg.exceptions import (
        CommitFailedException,
        CommitStateUnknownException,
        NoSuchTableError,
    )

    uncommitted = "" if is_reader else ", so nothing was committed"
    other_place = "" if is_reader else ", or archive to another place"
    try:
        yield
    except (RoquetError, CommitFailedException, CommitStateUnknownException):
        raise
    except FileNotFoundError as error:
        raise TableDamaged(
            f"a file that the catalog of {root} names is missing{uncommitted}; restore "
            f"it, or the table: {_first_line(error)}"
        ) from error
    except NoSuchTableError as error:
        raise CatalogFailed(
            f"the catalog of {root} has lost the table{uncommitted}: {_first_line(error)}. Its "
            f"files are there still: register the table again{other_place}"
        ) from error
    except Exception as error:
        if not CATALOG_PACKAGES.isdisjoint(
            each.__module__.partition(".")[0] for each in type(error).__mro__
        ):
            raise CatalogFailed(
                f"the catalog of {root} refused or did not answer: {type(error).__name__} "
                f"{_first_line(error)}"
            ) from error
        if isinstance(root, ObjectLocation) and isinstance(error, OSError):
            raise explanation(error, root) from error
        raise


def place_of_new(catalog: "Catalog", name: str) -> str | None:
    """The location to give a new table NAMESPACE.NAME; None where the catalog finds one itself.

    A Hive metastore gives each namespace a directory of its own warehouse, wherever the target is,
    and takes tables of any other place. Theirs is where an SQL catalog has them, too.
    """
    if not is_hive(catalog):
        return None
    return "/".join([catalog.properties[WAREHOUSE].rstrip("/"), *name.split(".")])


def check_installed() -> None:
    """Raise ConfigError, with the command to install it, without pyiceberg and sqlalchemy."""
    try:
        import pyiceberg  # noqa: F401
        import sqlalchemy  # noqa: F401
    except ImportError as error:
        raise ConfigError("Iceberg tables need pyiceberg: pip install 'roquet[iceberg]'") from error


def check_name(name: str) -> None:
    """Raise ConfigError unless a table's name is NAMESPACE.NAME."""
    if not all(part.strip() for part in name.split(".")) or "." not in name:
        raise ConfigError(f"--table {name!r} is not NAMESPACE.NAME, such as lake.orders")


def name_of(topic: str) -> str:
    """The default table name of a topic."""
    plain = "".join(letter if letter.isalnum() else "_" for letter in topic)
    return f"{NAMESPACE}.{plain}"


def _first_line(error: Exception) -> str:
    text = getattr(error, "message", None)  # of thrift's errors, whose str() repeats their class
    return (str(text or error).strip().splitlines() or [""])[0]


def is_hive(catalog: "Catalog") -> bool:
    """Whether a catalog is that of a Hive metastore; imports nothing."""
    return any(each.__module__ == "pyiceberg.catalog.hive" for each in type(catalog).__mro__)


def use_calls_of_hive_4(catalog: Any) -> None:
    """Have this catalog of a Hive metastore read and list its tables by other calls.

    Hive 2.3 to 4 answer them; pyiceberg 0.12 reads tables by calls that Hive lacks since 4.0.1.
    """

    def list_tables(namespace: "str | Identifier") -> "list[Identifier]":
        return _table_names(catalog, catalog.identifier_to_database(namespace))

    catalog._get_hive_table = _table
    catalog.list_tables = list_tables


def _table(client: Any, database_name: str, table_name: str) -> Any:
    from hive_metastore.ttypes import GetTableRequest, NoSuchObjectException
    from pyiceberg.exceptions import NoSuchTableError

    request = GetTableRequest(dbName=database_name, tblName=table_name)
    try:
        return client.get_table_req(request).table
    except NoSuchObjectException as error:
        raise NoSuchTableError(f"{database_name}.{table_name}") from error


def _table_names(catalog: Any, database_name: str) -> "list[Identifier]":
    from hive_metastore.ttypes import GetTablesRequest

    with catalog._client as client:
        names = client.get_all_tables(db_name=database_name)
        request = GetTablesRequest(dbName=database_name, tblNames=names)
        tables = client.get_table_objects_by_name_req(request).tables if names else []
    kinds = {each.tableName: each.parameters.get("table_type", "") for each in tables}
    return [(database_name, name) for name, kind in kinds.items() if kind.lower() == "iceberg"]
