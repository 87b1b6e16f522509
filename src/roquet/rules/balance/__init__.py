"""Balance: which member reads which queue, the cost of a change, and the hand-over of queues."""
