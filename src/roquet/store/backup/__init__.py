"""Backup and restore: consistent copies of a data directory, made while a broker uses it.

manifest   the files of a backup with their checksums
copying    copies one file, with its checksum
contents   which files of a data directory belong into a backup, and up to which position
backup     makes a backup, which shares unchanged files with the one before it
restore    checks a backup and makes a data directory of it
"""
