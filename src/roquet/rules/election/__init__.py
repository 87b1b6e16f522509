"""Election: a controller's state of a replica group, the election of its master, and leases."""
