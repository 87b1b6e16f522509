"""The repair job: a group's dead letters become a table, and chosen ones are sent again.

repair_job     the run: archives the topics, converts them, sends chosen letters again
letter_table   messages of dead-letter and retry topics as rows that say why they failed
resend_log     which letters were sent again, noted before and after sending
"""

from roquet.spark.jobs.repair.repair_job import Params, RepairProgress, main, run

__all__ = ["Params", "RepairProgress", "main", "run"]
