"""The PySpark data source and the jobs on it.

session           a SparkSession on this machine or on a cluster
executors         what a session's workers run at once, and whether their packages fit
versions          the versions that driver and workers need
typed             columns parsed from JSON bodies
listener          lag and rate of running queries
source/           reads: topics and store files as DataFrames and streams
sink/             writes: rows become messages, plainly or in transactions
jobs/             archive, materialize, replay, repair and audit
cluster/          calls to name servers and brokers
options           the options of a read; offset_spec parses two of them
"""
