"""Patterns: resource patterns and source addresses of policies, parsed and matched.

Source: Apache RocketMQ 5.5.0, as it answered requests (ACL 2.0).
"""

from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

from roquet.model.access import Match, Resource, ResourcePattern, ResourceType
from roquet.model.errors import ConfigError

ANY_RESOURCE: Final = ResourcePattern(None, Match.ANY)

_KINDS: Final = {kind.lower(): kind for kind in ResourceType}

_MAPPED_BITS: Final = 96
"""Bits in front of the IPv4 address in an IPv6 address that stands for one."""

_Network = IPv4Network | IPv6Network


def parse_pattern(text: str) -> ResourcePattern | None:
    """Parse `*`, `Topic:*`, `Topic:pre*` or `Topic:name`; None for any other text.

    The type is read without regard to case. What follows the first star of a name is ignored, as by
    Apache's brokers.
    """
    if text == "*":
        return ANY_RESOURCE
    kind, colon, name = text.partition(":")
    resource_kind = _KINDS.get(kind.lower())
    if not colon or not name or resource_kind is None:
        return None
    prefix, star, _ = name.partition("*")
    if not star:
        return ResourcePattern(resource_kind, Match.LITERAL, name)
    return ResourcePattern(resource_kind, Match.PREFIX if prefix else Match.ANY, prefix)


def matches(pattern: ResourcePattern, resource: Resource) -> bool:
    """Whether a pattern includes a resource."""
    if pattern.kind is not None and pattern.kind is not resource.kind:
        return False
    if pattern.match is Match.LITERAL:
        return pattern.name == resource.name
    return resource.name.startswith(pattern.name)


def is_source(text: str) -> bool:
    """Whether a text is an IP address or a CIDR block."""
    return _network(text) is not None


def parse_sources(text: str, name: str) -> tuple[str, ...]:
    """Parse IP addresses and CIDR blocks with commas or blanks between them.

    Raises ConfigError, which begins with `name`, for any other text.
    """
    sources = tuple(text.replace(",", " ").split())
    for source in sources:
        if not is_source(source):
            raise ConfigError(f"{name}: {source!r} is no IP address and no block like 10.0.0.0/8")
    return sources


def comes_from(address: str, source: str) -> bool:
    """Whether an IP address is the source, or in its block.

    An IPv4 address in the form of IPv6 (::ffff:10.0.0.1) is the IPv4 address. False for an address
    that is none.
    """
    network, ip = _network(source), _address(address)
    return network is not None and ip is not None and ip in network


@lru_cache(maxsize=4096)
def _network(text: str) -> _Network | None:
    address, slash, bits = text.partition("/")
    if slash and not (bits.isascii() and bits.isdigit()):
        return None
    try:
        network = ip_network(text, strict=False)
    except ValueError:
        return None
    mapped = getattr(network.network_address, "ipv4_mapped", None)
    if mapped is not None and network.prefixlen >= _MAPPED_BITS:
        return IPv4Network((mapped, network.prefixlen - _MAPPED_BITS), strict=False)
    return network if address.strip() == address else None


@lru_cache(maxsize=4096)
def _address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        address = ip_address(text)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
