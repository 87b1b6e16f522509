"""Needs of the Admin service: the action on a resource of its own that each request needs.

As in Apache's proxy: literals of the type cluster, `cluster:proxy.admin.client` and so on.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from roquet.model.access import Action, Resource, ResourceType
from roquet.rules.access.decision import AccessRequest


def _need(area: str, action: Action) -> AccessRequest:
    return AccessRequest(Resource(ResourceType.CLUSTER, f"proxy.admin.{area}"), (action,))


NEEDS: Final[Mapping[str, AccessRequest]] = MappingProxyType(
    {
        "ListSubscription": _need("client", Action.LIST),
        "ListConsumerConnection": _need("client", Action.LIST),
        "DescribeSubscription": _need("client", Action.GET),
        "DescribeGroupAccumulation": _need("client", Action.GET),
        "GetConsumerRunningInfo": _need("client", Action.GET),
        "QueryTimeSpan": _need("client", Action.GET),
        "ChangeLogLevel": _need("config", Action.UPDATE),
        "PrintThreadStackTrace": _need("connection", Action.UPDATE),
        "VerifyMessage": _need("connection", Action.UPDATE),
        "GetTopicRoute": _need("route", Action.GET),
        "GetProxyRuntimeStats": _need("ops", Action.GET),
        "DescribeTopicStatus": _need("ops", Action.GET),
        "QueryMessage": _need("ops", Action.GET),
        "ResetGroupOffset": _need("ops", Action.UPDATE),
        "DeleteSubscription": _need("ops", Action.DELETE),
        "AdminSendMessage": _need("ops", Action.PUB),
    }
)
"""Needs by the names of the methods."""
