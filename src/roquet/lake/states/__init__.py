"""Tables of the latest state: the latest message of each key, by buckets of the key.

state_table     the Delta table and what it remembers of itself
iceberg_state   the same as a table of an Iceberg catalog
latest_rows     the latest change of each key; pure
buckets         partitions the table by a hash of the key
"""
