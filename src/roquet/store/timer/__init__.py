"""The timer store: a wheel of delivery times and a log of the messages that wait for them.

timers     the facade: add, read, advance, save
recovery   makes wheel, log and checkpoint agree after a crash
wheel      a slot for each second of two weeks
log        a unit for each message, chained within its second
layout     bytes of slots, units and the checkpoint
"""
