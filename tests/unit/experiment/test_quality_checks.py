"""The rules: strict about the fact, lenient about the wrapping; model code stays in its fence."""

from __future__ import annotations

import pytest

from turbo_lab.core.errors import UsageError
from turbo_lab.experiment.quality_checks import mentions, why_not
from turbo_lab.experiment.quality_code import code_of, why_code_fails

ADD = {"type": "code", "function": "add", "cases": [[[1, 2], 3], [[0, 0], 0]]}


@pytest.mark.parametrize(
    ("rule", "reply", "ok"),
    [
        ({"type": "contains_any", "any": ["Au"]}, "The symbol is Au.", True),
        ({"type": "contains_any", "any": ["Au"]}, "It is because of August.", False),
        ({"type": "contains_any", "any": ["北京"]}, "首都是北京。", True),
        ({"type": "number", "value": 1234}, "That makes 1,234.", True),
        ({"type": "number", "value": 5}, "2 + 3 = 5", True),
        ({"type": "number", "value": 5}, "5 - 2 = 3", False),
        ({"type": "number", "value": -2}, "It is -2", True),
        ({"type": "copy", "text": "a, b, c"}, '"a,b , c."', True),
        ({"type": "copy", "text": "a, b, c"}, "Here you are:\na, b, c", True),
        ({"type": "copy", "text": "a, b, c"}, "a\nb\nc", True),
        ({"type": "copy", "text": "a, b, c"}, "a, b, c, d", False),
        ({"type": "copy", "text": "a, b, c"}, 'The text is "a, b, c". Well.', True),
        ({"type": "copy", "text": "a, b, c"}, "The text: a, b, c", True),
        ({"type": "copy", "text": "a, b, c"}, 'The text is "a, b".', False),
        ({"type": "json", "equals": {"n": 7}}, '```json\n{"n": 7, "more": 1}\n``` done', True),
        ({"type": "json", "equals": {"n": 7}}, '{"n": "7"}', False),
        ({"type": "json", "equals": {"n": 1}}, '{"n": true}', False),
        ({"type": "json", "equals": {"n": 7}}, '{"n": 7', False),
        ({"type": "needle", "text": "7294"}, "The code is 7294!", True),
        ({"type": "needle", "text": "7294"}, "The code is 17294.", False),
        ({"type": "summary", "required": [["oak"]], "forbidden": ["flood"], "max_words": 4},
         "an oak fell", True),
        ({"type": "summary", "required": [["oak"]], "forbidden": ["flood"], "max_words": 4},
         "an oak fell in the night", False),
        ({"type": "summary", "required": [["oak"]], "forbidden": ["flood"], "max_words": 9},
         "a flood took the oak", False),
    ],
)  # fmt: skip
def test_rules(rule, reply, ok):
    assert (why_not(rule, reply) is None) is ok


def test_an_unknown_rule_is_an_error_and_words_are_whole():
    with pytest.raises(UsageError, match="number"):
        why_not({"type": "numbr"}, "5")
    assert mentions("Paris!", "paris") and not mentions("comparison", "paris")


@pytest.mark.parametrize(
    "reply",
    [
        "def add(a, b):\n    return a + b",
        "So:\n```python\ndef add(x, y):\n    s = x\n    s += y\n    return s\n```\nDone.",
        "def add(a, b):\n    return sum([a, b])\n\nThis function adds.",
    ],
)
def test_right_code_passes_whatever_surrounds_it(reply):
    assert why_not(ADD, reply) is None


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("return a - b", r"add\(1, 2\) is -1, expected 3"),
        ("return (", "no function add"),
        ("import os\n    return a + b", "not run: Import"),
        ("return open('x')", "NameError"),
        ("return ().__class__", "not run: .__class__"),
        ("return __import__('os')", "not run: __import__"),
        ("return [][1]", "IndexError"),
    ],
)
def test_wrong_and_dangerous_code_fails_with_its_reason(body, reason):
    import re

    found = why_not(ADD, f"def add(a, b):\n    {body}")
    assert found and re.search(reason, found)


def test_endless_code_ends():
    loop = "def add(a, b):\n    while True:\n        pass"
    found = why_code_fails(loop, function="add", cases=ADD["cases"], wall_s=0.3)
    assert found == "no result within 0.3 s"


def test_a_reply_cut_in_the_middle_counts_up_to_the_cut():
    assert code_of("Text\ndef f():\n  return 1").startswith("def f")
    assert why_not(ADD, "```python\ndef add(a, b):\n    return a + b\n\ndef more(") is None
