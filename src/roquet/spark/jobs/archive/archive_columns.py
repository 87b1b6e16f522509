"""Body columns of a run: those of the user's schema, and those that a batch turns out to have."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from roquet.lake.columns.body_columns import BodyField, parse_fields
from roquet.lake.table import ArchiveTable
from roquet.log_records import logger
from roquet.model.errors import ConfigError
from roquet.spark.jobs.archive.body_inference import infer_fields, sample_bodies
from roquet.spark.options import SourceOptions

if TYPE_CHECKING:
    from roquet.spark.source.tasks import ReadTask

log = logger(__name__)


def set_body_columns(
    table: ArchiveTable, body_schema: str, prefix: str = "", *, infer: bool
) -> None:
    """Add the columns that the user's schema of the bodies names.

    Raises ConfigError for a schema without a table for it, and for a table without any schema.
    """
    if not table.identity.body_format:
        if body_schema or infer:
            raise ConfigError(
                "--body-schema and --infer are for tables made with --body-format json: say it "
                "when the table is made"
            )
        return
    table.add_body_fields(parse_fields(body_schema, prefix))
    if not infer and not table.body_fields():
        raise ConfigError(
            "--body-format json needs the fields: --body-schema 'id bigint, name string', or "
            "--infer"
        )


def batch_fields(
    table: ArchiveTable,
    settings: SourceOptions,
    tasks: "Sequence[ReadTask]",
    prefix: str = "",
    *,
    infer: bool,
) -> tuple[BodyField, ...] | None:
    """The body columns of a batch; inferred ones are added to the table first.

    None for a table whose bodies are not parsed.
    """
    if not table.identity.body_format:
        return None
    fields = table.body_fields()
    found = infer_fields(sample_bodies(settings, tasks), fields, prefix) if infer else []
    if not found:
        return fields
    log.info("new columns: %s", ", ".join(f"{field.name} {field.type}" for field in found))
    table.add_body_fields(found)
    return table.body_fields()
