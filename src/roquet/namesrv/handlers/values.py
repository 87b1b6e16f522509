"""Named values that operators keep."""

from roquet.model.errors import CallRefused
from roquet.namesrv.state import State
from roquet.net.router import Peer
from roquet.wire import dialect
from roquet.wire.call import Reply
from roquet.wire.calls import route as calls
from roquet.wire.calls.bodies import KVTable
from roquet.wire.codes import ResponseCode


def put_value(state: State, call: calls.PutKV, _peer: Peer) -> Reply:
    """Keeps a value."""
    state.values.put(call.namespace, call.key, call.value)
    return Reply()


def get_value(state: State, call: calls.GetKV, _peer: Peer) -> calls.ValueReply:
    """Gives a kept value back."""
    value = state.values.get(call.namespace, call.key)
    if value is None:
        raise CallRefused(
            ResponseCode.QUERY_NOT_FOUND,
            f"No config item, Namespace: {call.namespace} Key: {call.key}",
        )
    return calls.ValueReply(value=value)


def delete_value(state: State, call: calls.DeleteKV, _peer: Peer) -> Reply:
    """Forgets a kept value."""
    state.values.delete(call.namespace, call.key)
    return Reply()


def list_values(state: State, call: calls.ListKV, _peer: Peer) -> Reply:
    """All values of a namespace."""
    values = state.values.all(call.namespace)
    if not values:
        raise CallRefused(
            ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {call.namespace}"
        )
    return Reply(body=dialect.dumps(KVTable(table=dict(values))))
