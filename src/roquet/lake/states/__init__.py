"""Tables of the latest state: the latest message of each key, by buckets of the key.

state_table     the Delta or Iceberg table and what it remembers of itself
latest_rows     the latest change of each key; pure
buckets         partitions the table by a hash of the key
"""
