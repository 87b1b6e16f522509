"""Handlers of the proxy: a class for each conversation, a method for each request of RocketMQ 5.

A handler's fields name the parts that it needs; its methods take the request and the caller.
"""
