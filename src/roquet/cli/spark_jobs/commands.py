"""roquet spark: its commands, in the order of the help; Spark is imported when one of them runs."""

from typing import Final

from roquet.cli.operator_command import CommandGroup
from roquet.cli.spark_jobs.archive import archive
from roquet.cli.spark_jobs.audit import audit
from roquet.cli.spark_jobs.lag import lag
from roquet.cli.spark_jobs.maintain import maintain
from roquet.cli.spark_jobs.materialize import materialize
from roquet.cli.spark_jobs.repair import repair
from roquet.cli.spark_jobs.replay import replay

app: Final = CommandGroup("spark", "Jobs on Spark: topics to tables.")

for _command in (archive, lag, audit, materialize, replay, repair, maintain):
    app.command()(_command)
