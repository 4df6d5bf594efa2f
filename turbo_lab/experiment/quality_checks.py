"""Does a reply answer its prompt? One rule per kind of answer; a failure says why.

The rules are strict about the fact and lenient about the wrapping: a sentence around a number, code
fences and quotation marks are no errors.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from turbo_lab.core.errors import UsageError, did_you_mean
from turbo_lab.experiment.quality_code import why_code_fails
from turbo_lab.experiment.quality_prompts import QualityPrompt

Rule = Mapping[str, Any]
_NUMBER = re.compile(r"-?\d+(?:,\d{3})*(?:\.\d+)?")
_WIDE = str.maketrans("，：；（）。！", ",:;().!")
_QUOTED = re.compile(r"\"([^\"]+)\"|“([^”]+)”")
_QUOTES = "\"'`“”‘’「」*"


def passes(prompt: QualityPrompt, reply: str) -> bool:
    """True when the reply satisfies the prompt's rule."""
    return why_not(prompt.rule, reply) is None


def why_not(rule: Rule, reply: str) -> str | None:
    """None when the reply passes, else the reason in one line.

    Rules: ``contains_any`` (one of ``any`` as whole words, case ignored), ``needle`` (``text``
    likewise), ``number`` (the last number of the reply equals ``value``), ``copy`` (the reply, a
    line, what follows a colon, or a quotation is ``text``), ``json`` (the first JSON object has the
    pairs of ``equals``), ``code`` (the function gives the expected results), ``summary`` (a word of
    every group in ``required``, none of ``forbidden``, at most ``max_words``).

    Raises:
        UsageError: an unknown rule.
    """
    kind = str(rule.get("type"))
    if kind not in _CHECKS:
        raise UsageError(f"rule type is {kind!r}.{did_you_mean(kind, list(_CHECKS))}")
    return _CHECKS[kind](rule, reply)


def mentions(text: str, word: str) -> bool:
    """``word`` occurs in ``text``: as whole words in Latin script, anywhere in Chinese."""
    if not word.isascii():
        return word.lower() in text.lower()
    return re.search(rf"(?<![A-Za-z0-9]){re.escape(word)}(?![A-Za-z0-9])", text, re.I) is not None


def mentions_any(text: str, words: Sequence[str]) -> bool:
    """One of ``words`` occurs in ``text``, as ``mentions`` means it."""
    return any(mentions(text, word) for word in words)


def _contains_any(rule: Rule, reply: str) -> str | None:
    if mentions_any(reply, rule["any"]):
        return None
    return f"none of {', '.join(rule['any'])} in the reply"


def _needle(rule: Rule, reply: str) -> str | None:
    return None if mentions(reply, rule["text"]) else f"{rule['text']!r} is not in the reply"


def _number(rule: Rule, reply: str) -> str | None:
    found = _NUMBER.findall(reply)
    if not found:
        return "no number in the reply"
    last = float(found[-1].replace(",", ""))
    return None if last == rule["value"] else f"the last number is {found[-1]}"


def _plain(text: str) -> str:
    """Wide punctuation narrowed, quotes and a final full stop dropped, single spaces."""
    text = " ".join(text.translate(_WIDE).split()).strip(_QUOTES + " ")
    text = re.sub(r"\s*,\s*", ", ", text)
    return text.rstrip(".").strip(_QUOTES + " ")


def _copy(rule: Rule, reply: str) -> str | None:
    wanted = _plain(rule["text"])
    lines = reply.splitlines()
    told = [line.partition(sign)[2] for line in lines for sign in (":", "：")]
    candidates = [
        reply,
        *lines,
        *told,
        *("".join(q) for q in _QUOTED.findall(reply)),
        ", ".join(lines),
    ]
    return None if any(_plain(c) == wanted for c in candidates) else "the copy differs"


def _json(rule: Rule, reply: str) -> str | None:
    start = reply.find("{")
    if start < 0:
        return "no JSON object in the reply"
    try:
        found, _ = json.JSONDecoder().raw_decode(reply[start:])
    except ValueError as error:
        return f"not JSON: {error}"
    wrong = [k for k, v in rule["equals"].items() if not _same_json(found.get(k), v)]
    return f"missing or wrong: {', '.join(wrong)}" if wrong else None


def _same_json(a: Any, b: Any) -> bool:
    """Equal in value and in kind: ``true`` is not 1, ``"7"`` is not 7."""
    return json.dumps(a, sort_keys=True) == json.dumps(b, sort_keys=True)


def _code(rule: Rule, reply: str) -> str | None:
    return why_code_fails(reply, function=rule["function"], cases=rule["cases"])


def _summary(rule: Rule, reply: str) -> str | None:
    for group in rule["required"]:
        if not any(mentions(reply, word) for word in group):
            return f"none of {', '.join(group)} in the summary"
    if found := [word for word in rule["forbidden"] if mentions(reply, word)]:
        return f"{', '.join(found)} is not in the text"
    size = _length(reply)
    limit = rule["max_words"]
    return None if size <= limit else f"{size} words, at most {limit} are wanted"


def _length(text: str) -> int:
    """Latin words plus Chinese characters."""
    return len(re.findall(r"[A-Za-z0-9'-]+", text)) + len(re.findall(r"[\u4e00-\u9fff]", text))


_CHECKS: dict[str, Callable[[Rule, str], str | None]] = {
    "contains_any": _contains_any,
    "needle": _needle,
    "number": _number,
    "copy": _copy,
    "json": _json,
    "code": _code,
    "summary": _summary,
}
