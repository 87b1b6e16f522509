"""The balance lab: every strategy played over millions of simulated histories of a group."""
