"""The file system as the store sees it: files, memory maps, segments, locks and durability.

segments         equal-sized files seen as one address space
mapped_file      one file seen as memory, and the pool that bounds how many are mapped
files            the operations of a file system; memory_files has them in memory
directory_lock   one process for each directory, and the errors of system calls
libc             calls that Python lacks, among them one that makes a whole disk durable
private_files    modes of new files and directories
"""
