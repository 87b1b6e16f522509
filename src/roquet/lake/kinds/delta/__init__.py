"""Delta tables: archives as Delta tables, each commit an entry of the log.

delta_table       the archive's table: its state, its commits, its files
storage           how deltalake reaches a log; conditional_puts checks that a store obeys it
log_entries       entries of a log, newest first, and restores among them
actions           files of a table as entries of its log, and what they say of them
columns           the schema, body columns, columns with statistics
"""
