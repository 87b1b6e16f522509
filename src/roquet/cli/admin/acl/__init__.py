"""Commands on users and policies: roquet acl."""
