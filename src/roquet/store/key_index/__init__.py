"""The key index: from a message key to positions in the commit log.

dispatch      follows the log, hashes keys, adds entries
index         the files: slots and chains of entries
index_check   compares the files with the log
"""
