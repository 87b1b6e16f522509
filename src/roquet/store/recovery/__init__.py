"""Opening a directory: recovery after a stop or a crash, and the scrub of the older log.

open_directory        locks and loads the parts of a store
rocksdb_directories   refuses directories whose tables are in RocksDB
recover               makes log, queues and index agree
scrub                 checks what recovery did not read, while the store serves
"""
