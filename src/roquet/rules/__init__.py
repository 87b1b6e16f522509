"""The decisions: pure functions of facts, the time and random numbers.

No clock, socket, file or thread: a test needs nothing but arguments.

    allocate/            strategies: which member of a group owns which queue
    balance/             rebalancing, its cost, the lag, disagreement, hand-over of queues
    consumption/         pull, pop, messages in flight, flow control
    delay/               delay levels, retries, timer messages
    sql92/               filter expressions
    admission            busy refusals, and pauses of slow connections
    routing              the name server's routes · liveness: silent peers
    route_changes        by operators, and who hears of the lowest broker id
    queue_selection      where to send, and brokers to avoid
    send_retry           failed sends to try again · backoff: pauses between attempts
    tag_filter           tags and their hashes
    topic_attributes     changes of attributes · topic_id: topics of one name
    transaction          checks and ends of half messages
    recovery             the true end of the log · retention: deletable files
    watermark            a growing number and its waiters
    bounded_cache        the most recently used values
"""
