"""The audit job: a table compared with its topic and with a producer's own counts.

audit_job       the run: reads files and asks brokers, then compares (roquet.lake.audit)
"""

from roquet.spark.jobs.audit.audit_job import AuditProgress, Params, main, run, transform

__all__ = ["AuditProgress", "Params", "main", "run", "transform"]
