"""Hidden secrets: settings files as text in which the values of secrets are hidden.

A file is JSON, YAML, or the lines of a properties file. Of the first two the values are hidden by
their keys at any depth, however they are spread over lines. Comments are left out of all.
"""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Final

import msgspec

from roquet.broker.settings.config_file import lines
from roquet.broker.settings.definitions import SETTINGS, setting_of
from roquet.broker.settings.value_formats import HIDDEN
from roquet.model.errors import ConfigError
from roquet.store.filesystem.files import RealFiles
from roquet.wire.fastjson import codec

SECRET_WORDS: Final = (
    "password",
    "passwd",
    "secret",
    "token",
    "credential",
    "accesskey",
    "apikey",
    "authenticationuser",
    "initialuser",
    "passphrase",
    "pwd",
    "privatekey",
    "accountkey",
)
"""Parts of the names of settings, in lower case and letters alone, whose values are hidden,
whatever is known of them."""

SECRET_ENDINGS: Final = ("pass", "authorization", "authorizationheader")
"""Ends of such names: `authorizationEnabled` is no secret."""

YAML_SUFFIXES: Final = (".yml", ".yaml")

_NAMED: Final = re.compile(r"[\"']([^\"']+)[\"']\s*:|(?<![\w.-])([\w.-]++)\s*[:=]")
"""A name in a value: in quotes with a colon behind it, or without and with either sign. Each word
is looked at once, so that a long one takes no longer than several."""

_NAMES_OF_PAIRS: Final = ("name", "key")
_VALUES_OF_PAIRS: Final = ("value", "val")
"""Keys of a name and of its value side by side, in any case, as Kubernetes writes variables."""

_LOGIN: Final = re.compile(r"://[^\s/@:]*+:[^\s@]{1,256}+@")
"""A user and a password in an address."""

_BLOCK_BEGIN: Final = "-----BEGIN"
_BLOCK: Final = re.compile(r"-----BEGIN.*?(?:-----END[^\n]*|\Z)", re.DOTALL)
"""A key or certificate in lines of its own."""


def hide_secrets(pairs: Sequence[tuple[str, str]]) -> str:
    """Settings as text, a line each; values that are secrets or have one in them are hidden."""
    return "".join(
        f"{key}={HIDDEN if is_secret(key) or _has_secret(value) else value}\n"
        for key, value in pairs
    )


def shown_table(data: bytes) -> bytes:
    """A saved table as JSON without secrets. Raises FieldError for one that is no JSON."""
    shown = _without_secrets(codec.loads(data, object), {})
    return msgspec.json.format(msgspec.json.encode(shown))


def shown_settings(path: Path) -> str:
    """A settings file without its secrets. Raises ConfigError for JSON or YAML that is broken."""
    text = RealFiles().read(path).decode("utf-8-sig")
    pairs = [(key, value) for _, key, value in lines(text)]
    if pairs and pairs[0][0].startswith(("{", "[")):
        return _shown_json(text)
    if (shown := _shown_yaml(text)) is not None:
        return shown
    if path.suffix.lower() in YAML_SUFFIXES:
        raise ConfigError("left out: by its name it is YAML, and it is none")
    kept = _without_parts(_BLOCK.sub(HIDDEN, text))
    return hide_secrets([(key, value) for _, key, value in lines(kept)])


@lru_cache(1024)  # a table has its few names a million times
def is_secret(key: str) -> bool:
    """Whether the value of a setting is a secret, by the setting's name."""
    name = "".join(filter(str.isalpha, key.lower()))
    if name.endswith(SECRET_ENDINGS) or any(word in name for word in SECRET_WORDS):
        return True
    own_key = key.removeprefix("ROQUET_").lower() if key.startswith("ROQUET_") else key
    try:
        own_name, _ = setting_of(own_key, key)
    except ConfigError:
        return False
    return own_name is not None and SETTINGS[own_name].is_secret


def _shown_json(text: str) -> str:
    try:  # line by line a name and its value would have nothing to do with each other
        shown = _without_secrets(msgspec.json.decode(text), {})
    except (msgspec.DecodeError, RecursionError):
        raise ConfigError("left out: it begins as JSON and is none") from None
    return msgspec.json.format(msgspec.json.encode(shown)).decode()


def _shown_yaml(text: str) -> str | None:
    """The documents of a YAML file; None for another text, such as a properties file."""
    import yaml  # here: it takes 10 ms

    try:
        documents = list(yaml.load_all(text, yaml.BaseLoader))  # makes texts, lists and maps alone
        if not any(isinstance(document, dict | list) for document in documents):
            return None
        shown = _without_secrets(documents, {})
        dumped: str = yaml.safe_dump_all(shown, sort_keys=False, allow_unicode=True)
    except (yaml.YAMLError, RecursionError):
        return None
    return dumped


def _without_secrets(value: object, done: dict[int, object]) -> object:
    """A value of JSON or YAML whose secrets are hidden, by their keys, at any depth.

    `done` are the results by the identity of values: YAML can name one value a million times.
    """
    if isinstance(value, str):
        return HIDDEN if _has_secret(value) else value
    if not isinstance(value, dict | list):
        return value
    if id(value) not in done:
        done[id(value)] = (
            [_without_secrets(part, done) for part in value]
            if isinstance(value, list)
            else {
                key: HIDDEN if _hides(value, key) else _without_secrets(part, done)
                for key, part in value.items()
            }
        )
    return done[id(value)]


def _hides(mapping: dict[object, object], key: object) -> bool:
    """Whether a value of a mapping is a secret, by its key or by the name beside it."""
    names = [str(key)]
    if names[0].lower() in _VALUES_OF_PAIRS:
        names += (str(v) for k, v in mapping.items() if str(k).lower() in _NAMES_OF_PAIRS)
    return any(map(is_secret, names))


def _has_secret(value: str) -> bool:
    """Whether a value has a secret in it, by its form, or by name in a text of settings."""
    if _BLOCK_BEGIN in value or _LOGIN.search(value):
        return True
    return any(is_secret(quoted or bare) for quoted, bare in _NAMED.findall(value))


def _without_parts(text: str) -> str:
    """Lines without those that go on with the value of a secret, as indented ones do in YAML.

    For a text that was to be YAML, and has an error somewhere.
    """
    return "\n".join(_first_parts(text.splitlines()))


def _first_parts(texts: Sequence[str]) -> Iterator[str]:
    column: int | None = None
    is_open = False
    for line in texts:
        indent = len(line) - len(line.lstrip())
        is_item = line.lstrip().startswith("- ") and column is not None and indent >= column
        if is_open or (column is not None and (not line.strip() or indent > column or is_item)):
            is_open = is_open and line.endswith("\\")
            continue
        column = None
        if any(is_secret(key) for _, key, _ in lines(line.rstrip("\\"))):
            column = len(line) - len(line.lstrip(" \t-?"))
            line, is_open = line.rstrip("\\"), line.endswith("\\")
        yield line
