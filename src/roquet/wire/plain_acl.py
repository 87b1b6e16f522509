"""plain_acl.yml: the file with users and permissions of Apache RocketMQ 4.x, decoded from YAML.

Every value is read as the text that was written: a secret of digits stays these digits.
"""

import msgspec

from roquet.model.errors import FieldError
from roquet.model.plain_acl import PlainAcl


def decode_plain_acl(data: bytes) -> PlainAcl:
    """Decode a file; keys that Apache's broker does not know either are left out.

    Raises FieldError, which repeats no content: there are secrets in it.
    """
    import yaml  # here: it takes 10 ms, and few brokers read such a file

    try:
        content = yaml.load(data, yaml.BaseLoader)  # makes texts, lists and maps alone
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = "" if mark is None else f", line {mark.line + 1}"
        raise FieldError(f"this is no YAML{where}") from None
    except (yaml.YAMLError, RecursionError):
        raise FieldError("this is no YAML") from None
    if not isinstance(content, dict) or "accounts" not in content:
        raise FieldError('no YAML map with the list "accounts"')
    try:
        return msgspec.convert(content, PlainAcl)
    except (msgspec.ValidationError, RecursionError) as error:
        raise FieldError(f"not as Apache RocketMQ 4 writes it: {error}") from None
