"""The nouns: frozen values that every layer shares; no clock, no bytes, no files.

By subject:

    message, queue, results          messages, queue addresses, results of sends and pulls
    topic, route, subscription       topics and groups, brokers of a topic, members of groups
    names, namespaces, properties    names of topics, groups and message properties
    flags, errors                    bit sets, the error tree
    settings, config_check           settings from text, and their checks
    printable_text                   foreign text made safe to show
"""
