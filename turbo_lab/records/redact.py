"""Take secrets and personal names out of what is written to disk or published.

``redact`` runs on every record; ``anonymise`` also removes absolute paths and the host's name and
runs when a record is promoted into the repository. Keys are never changed, only values.
"""

from __future__ import annotations

import contextlib
import getpass
import re
import socket
from collections.abc import Callable
from typing import Any

HIDDEN = "[redacted]"
# Names that say nothing about a person or a host, or that are ordinary words in a log.
PLAIN_NAMES = frozenset({
    "root", "user", "users", "admin", "runner", "ubuntu", "jovyan", "vscode", "docker", "nobody",
    "home", "work", "main", "test", "host", "localhost", "server", "worker", "build", "linux",
    "debian", "local", "data",
})  # fmt: skip
_SECRET_KEY = re.compile(
    r"(^|_)(api_?keys?|access_key|private_key|password|passwd|passphrase|credentials?|"
    r"authorization|cookie)(_|$)|secret|"
    r"(^|_)(hf|hub|access|auth|api|bearer|refresh|session|github|gh|gitlab|pypi)_?token$|^token$"
)
_SECRET_TEXT = (
    (re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}"), r"\1 " + HIDDEN),
    (re.compile(r"\b(hf|gh[pousr]|glpat|pypi|xox[bp])[_-][A-Za-z0-9_-]{16,}"), HIDDEN),
    (re.compile(r"\bsk-[A-Za-z0-9_-]{16,}"), HIDDEN),
    (re.compile(r"\bAKIA[A-Z0-9]{16}\b"), HIDDEN),
    (re.compile(r"(?i)(--?(?:api[-_]key|hf[-_]token|token|password)[= ])\S+"), r"\1" + HIDDEN),
    (
        re.compile(
            r"(?i)\b(\w*(?:api_?key|password|secret|(?:hf|hub|auth|access)_token)\w*)"
            r"(\s*[=:]\s*)['\"]?[^\s'\",;]+['\"]?"
        ),
        r"\1\2" + HIDDEN,
    ),
    (re.compile(r"\b(\w{1,20}://)[^/\s:@]+:[^/\s@]+@"), r"\1" + HIDDEN + "@"),
)
_SECRET_FLAG = re.compile(r"(?i)^--?(api[-_]key|hf[-_]token|token|password)$")
_HOME = re.compile(r"(/home|/Users|[A-Za-z]:\\Users)[/\\][^/\\\s:'\",]+|/root(?=/|\b)")
_ROUTES = r"(?!/v\d+/|/metrics\b|/health\b)"
_ABSOLUTE = re.compile(r"(?<![\w.:/<>~\]])" + _ROUTES + r"/(?:[\w.+@=-]+/)+([\w.+@=-]*)")
_WINDOWS = re.compile(r"\b[A-Za-z]:\\(?:[^\\\s'\"]+\\)+([^\\\s'\"]*)")
_URL_ADDRESS = re.compile(r"(://)(?!127\.|0\.0\.0\.0)\d{1,3}(?:\.\d{1,3}){3}")


def redact(value: Any) -> Any:
    """A copy of JSON-able ``value`` without API keys, tokens, passwords and user names in paths.

    Counts under keys such as ``max_tokens`` or ``eos_token`` stay.
    """
    return _walk(value, _without_secrets)


def anonymise(value: Any) -> Any:
    """``redact``, and no absolute path (its last part stays), host name or foreign address."""
    names = _own_names()
    return _walk(value, lambda text: _without_places(_without_secrets(text), names))


def _walk(value: Any, clean: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {
            key: _hide(item) if _is_secret_key(str(key)) else _walk(item, clean)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return _walk_list(list(value), clean)
    return value


def _walk_list(items: list[Any], clean: Callable[[str], str]) -> list[Any]:
    """A command line gives a secret as the word after its flag."""
    hidden_next, out = False, []
    for item in items:
        out.append(HIDDEN if hidden_next and isinstance(item, str) else _walk(item, clean))
        hidden_next = isinstance(item, str) and bool(_SECRET_FLAG.match(item))
    return out


def _is_secret_key(key: str) -> bool:
    return bool(_SECRET_KEY.search(key.lower().replace("-", "_")))


def _hide(value: Any) -> Any:
    """Hide text; null, flags and numbers under a secret's name tell nothing."""
    if isinstance(value, dict):
        return {key: _hide(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_hide(item) for item in value]
    return HIDDEN if isinstance(value, str) and value else value


def _without_secrets(text: str) -> str:
    for pattern, replacement in _SECRET_TEXT:
        text = pattern.sub(replacement, text)
    return _HOME.sub("~", text)


def _without_places(text: str, names: re.Pattern[str] | None) -> str:
    text = _WINDOWS.sub(r"<path>/\1", _ABSOLUTE.sub(r"<path>/\1", text))
    text = _URL_ADDRESS.sub(r"\1[address]", text)
    return names.sub("[host]", text) if names else text


def _own_names() -> re.Pattern[str] | None:
    """This host's and this user's name as whole words, unless they are ordinary words."""
    found = {socket.gethostname(), socket.gethostname().split(".")[0]}
    with contextlib.suppress(KeyError, OSError):
        found.add(getpass.getuser())
    names = sorted((n for n in found if len(n) > 3 and n.lower() not in PLAIN_NAMES), reverse=True)
    return re.compile(r"\b(" + "|".join(map(re.escape, names)) + r")\b") if names else None
