"""Plain ACL: users and permissions as `plain_acl.yml` of Apache RocketMQ 4.x has them (ACL 1.0)."""

import msgspec


class PlainAccount(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One account; the printed form does not contain the secret."""

    access_key: str = ""
    """The name of the user."""
    secret_key: str = ""
    white_remote_address: str = ""
    """Addresses from which its requests needed no signature; empty without any."""
    admin: str = ""
    """Whether it may change topics, groups and settings: a YAML boolean, as written."""
    default_topic_perm: str = ""
    """Permission on all other topics, as written; empty if the file does not say."""
    default_group_perm: str = ""
    """Permission on all other groups, as written; empty if the file does not say."""
    topic_perms: list[str] | str = ""
    """Permissions as `topic=PUB|SUB`; a text is that of an entry without a list."""
    group_perms: list[str] | str = ""
    """Permissions as `group=SUB`; a text is that of an entry without a list."""

    def __repr__(self) -> str:
        return f"PlainAccount(access_key={self.access_key!r})"


class PlainAcl(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The content of one file."""

    global_white_remote_addresses: list[str] | str = ""
    """Addresses from which no request needed a signature."""
    accounts: list[PlainAccount] | str = ""
    """A text is that of an entry without a list."""
