"""Object stores: the locations of tables in them, their files and credentials."""
