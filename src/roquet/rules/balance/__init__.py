"""Balance: which member reads which queue, what a change costs, and how a queue changes hands."""
