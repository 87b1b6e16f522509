"""Options of commands that run jobs on tables, and how each becomes a parameter of its job.

    class LagOptions(StorageOptions):
        every: str = option("", default="10s", gives=As("every_ms", millis("--every")))

    LagOptions(every="20s").params(Params)  ─▶  Params(every_ms=20_000)

An option goes to the parameter of its own name, or to the one that `As` names. One for which there
is no parameter is the command's own.
"""

import importlib.util
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from roquet.cli.command_options import As, CommandOptions, argument, option
from roquet.cli.terminal.progress import progress_bar
from roquet.model.errors import ConfigError, UsageError
from roquet.model.settings import parse_millis
from roquet.net.clock import SYSTEM_CLOCK
from roquet.spark import java

P = TypeVar("P", bound=msgspec.Struct)
D = TypeVar("D")

SPARK_PACKAGES: Final = ("pyspark", "pyarrow")
"""Packages that the extra `spark` installs."""

SECRET_OPTIONS: Final[Mapping[str, str]] = {
    "secretkey": "ROCKETMQ_SECRET_KEY",
    "securitytoken": "ROCKETMQ_SECURITY_TOKEN",
}
"""Options of the source that hold a secret, in small letters, and the variables that give it."""


def millis(option: str) -> Callable[[str], int]:
    """Converts texts such as 10s to ms; `option` names it in errors."""
    return lambda text: parse_millis(text, option)


def names(text: str) -> tuple[str, ...]:
    """Comma-separated names as a tuple."""
    return tuple(part.strip() for part in text.split(","))


def pairs(option: str) -> Callable[[Sequence[str]], dict[str, str]]:
    """Converts NAME=VALUE texts to a dictionary; `option` names it in errors."""
    return lambda texts: parse_pairs(texts, option)


def _catalog(texts: Sequence[str]) -> Mapping[str, str]:
    from roquet.lake.kinds.iceberg import parse_catalog

    return parse_catalog(texts)


MASTER: Final = option("A Spark master; else the one of spark-submit, else all cores here.")
STORAGE: Final = option(
    "Of an object store: AWS_ENDPOINT_URL, AWS_REGION; credentials by the environment.",
    gives=As("storage", pairs("--storage-option")),
    metavar="NAME=VALUE",
)
CATALOG: Final = option(
    "Iceberg: a URI, glue, a name in .pyiceberg.yaml, or an option; may be repeated.",
    "--catalog",
    "--catalog-option",
    gives=As("catalog", _catalog),
    metavar="NAME|URI|NAME=VALUE",
)
TOPIC: Final = argument("The topic's name.")
TABLE: Final = argument(
    "Where the table is, or is to be: a directory or s3://BUCKET/PATH.", gives=As("target")
)
KIND: Final = option("delta, iceberg; else as the directory looks.", "-k")
NEW_KIND: Final = option("delta, iceberg; of a new table delta if not said.", "-k", default="")
EVERY: Final = option(
    "Run for ever, with a batch this often: 10s.",
    gives=As("every_ms", millis("--every")),
    metavar="TIME",
)
COLUMNS: Final = option(
    "Only these, comma separated, when the table is made.", gives=As("columns", names)
)


class JobOptions(CommandOptions):
    """Options of a job."""

    def params(self, params: type[P], **more: Any) -> P:
        """The job's parameters, and some more.

        An option that was not given, or that has an empty text, leaves the default.
        """
        return params(**{**self.fields_of(params, absent=(None, "")), **more})


class StorageOptions(JobOptions):
    """Options of tables that may be in an object store."""

    storage_option: list[str] | None = STORAGE


class CatalogOptions(StorageOptions):
    """Options of tables that may be in a catalog."""

    catalog: list[str] | None = CATALOG


class TableOptions(CatalogOptions):
    """Options of tables that may have a name in a catalog."""

    table: str = option(
        "Iceberg: the table in its catalog.", default="", gives=As("name"), metavar="NAMESPACE.NAME"
    )


class BodyOptions(JobOptions):
    """Options of jobs that make columns of the fields of bodies."""

    body_format: str = option(
        "Of a new table: json gives the fields of bodies columns of their own.", default=""
    )
    body_schema: str = option(
        "The fields: 'id bigint, flight_day=day int'; new ones are added as columns.",
        default="",
        metavar="FIELDS",
    )
    body_prefix: str = option(
        "The begin of the names of new columns: body_ for body_id.", default="", metavar="PREFIX"
    )
    infer: bool = option(
        "Add columns for the fields that bodies turn out to have.", gives=As("infer_body")
    )
    avro: str | None = option("Columns by the Avro schema of the bodies.", metavar="FILE.avsc")
    protobuf: str | None = option(
        "Columns by the Protobuf descriptors of the bodies.", metavar="FILE.desc"
    )
    message_type: str | None = option("With --protobuf: shop.Order.", metavar="PACKAGE.NAME")

    def body_source(self) -> dict[str, Any]:
        """The parameters that the schema file of the bodies gives."""
        from roquet.lake.columns.body_schemas import read_schema_file

        given = {name: path for name in ("avro", "protobuf") if (path := getattr(self, name))}
        if len(given) + bool(self.body_format) > 1:
            raise UsageError("--avro, --protobuf or --body-format: bodies have one format")
        if (self.message_type is not None) != ("protobuf" in given):
            raise UsageError("--protobuf FILE.desc and --message-type PACKAGE.NAME go together")
        for name, path in given.items():
            source = read_schema_file(name, path, self.message_type or "")
            return {"body_format": name, "body_source": source}
        return {}


class SparkOptions(JobOptions):
    """Options of jobs that read or write topics on Spark."""

    option: list[str] | None = option(
        "Of the source, as in Spark; may be repeated.", "-o", metavar="NAME=VALUE"
    )
    master: str | None = MASTER

    def source(self, namesrv: str, **edges: str | None) -> dict[str, str]:
        """The options of the source: with the name servers, and where messages begin or end."""
        given = {name: text for name, text in edges.items() if text is not None}
        return {**given, **parse_pairs(self.option, "--option"), "namesrv": namesrv}


def parse_pairs(texts: Sequence[str] | None, name: str) -> dict[str, str]:
    """NAME=VALUE texts as a dictionary. Raises ConfigError for another text, and for a secret."""
    values = {}
    for text in texts or ():
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"{name}: {text!r} is not NAME=VALUE")
        if variable := SECRET_OPTIONS.get(key.strip().lower()):
            raise ConfigError(
                f"{name} {key.strip()}: every user of the machine sees the words of a command; set "
                f"{variable} in the environment of the driver and of the workers"
            )
        values[key.strip()] = value.strip()
    return values


def check_installed(needed: Sequence[str] = SPARK_PACKAGES, extras: str = "spark") -> None:
    """Raise UsageError, with the command that installs them, when packages are missing."""
    from roquet.spark.versions import OWN_SPARK, find_spark

    find_spark()
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        is_spark = "pyspark" in missing and extras == "spark"
        advice = OWN_SPARK if is_spark else f"pip install 'roquet[{extras}]'"
        raise UsageError(f"this needs {', '.join(missing)}: {advice}")


def check_java(master: str | None) -> None:
    """Raise ConfigError without a Java, unless a Spark master was given elsewhere."""
    from roquet.spark.jobs.job_runner import is_session_provided

    if not is_session_provided(master):
        java.java_home()


def _rows_and_lag(done: Any) -> tuple[int, int]:
    return done.rows, done.lag


def run_on_spark(
    name: str,
    title: str,
    job: Callable[..., D],
    params: Any,
    *more: Any,
    quiet: bool,
    left: str = "behind",
    count: Callable[[D], tuple[int, int]] = _rows_and_lag,
) -> tuple[D, float]:
    """Run a job on Spark, and show its progress; returns what it did, and how many seconds it took.

    `count` says how many rows are done, and how many are left.
    """
    from roquet.spark.jobs.job_runner import spark_for

    check_java(params.master)
    began_ms = SYSTEM_CLOCK.monotonic_ms()
    with progress_bar(title, quiet=quiet, left=left) as show:

        def tell(done: D) -> None:
            show(*count(done))

        done = job(params, lambda: spark_for(f"roquet {name}", params.master), tell, *more)
    return done, (SYSTEM_CLOCK.monotonic_ms() - began_ms) / 1000


def stop_event() -> threading.Event:
    """An event that SIGTERM sets: the running batch is committed first. Ctrl-C ends at once."""
    stop = threading.Event()
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, lambda *_: stop.set())
    return stop
