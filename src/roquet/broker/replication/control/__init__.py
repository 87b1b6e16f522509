"""Control: a broker's id, lease and role from its controller, and the changes between roles."""
