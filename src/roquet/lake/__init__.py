"""The lake: tables of messages and the object stores that they lie in, without Spark or Java.

table           what every kind of table can do; open_table chooses the kind
kinds/          Delta and Iceberg tables that archives fill, each with its commit
states/         tables of the latest message of each key
snapshot        the files and offsets of a table; arrow_dataset its rows
columns/        columns of messages, and the partitions and statistics of files
objects/        object stores: locations, credentials, files
files/          files of tables: written, staged, named
journal/        small records that change in place, and leases
status          what a table's job last knew of its lag
lag/            the lag of groups and of tables
audit/          what a table lacks or has twice
maintain/       small files merged, old days and versions removed
task_set        work in numbered tasks, which Spark's workers or threads run
queue_offsets   offsets of queues and ranges of them; intervals: sets of offsets
"""
