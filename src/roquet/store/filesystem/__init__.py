"""The file system as the store sees it: files, memory maps, segments, locks and durability."""
