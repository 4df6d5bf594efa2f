"""Run a small function that a model wrote, on given cases, without trusting it.

Three fences: only harmless syntax and a short list of builtins and methods are accepted (checked on
the syntax tree, before anything runs); it runs in a child process without the environment's
packages; the child has seconds of processor time and a bounded memory.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

CPU_S, WALL_S, MEMORY_BYTES = 2, 10.0, 1 << 30
_BUILTINS = (
    "abs all any bool dict divmod enumerate float int len list map max min pow range reversed "
    "round set sorted str sum tuple zip"
)
_METHODS = (
    "append extend insert pop reverse sort copy index count join split strip lower upper replace "
    "startswith endswith items keys values get add update"
)
BUILTINS, METHODS = frozenset(_BUILTINS.split()), frozenset(_METHODS.split())
_NODES = (
    ast.Module, ast.FunctionDef, ast.arguments, ast.arg, ast.Return, ast.Assign, ast.AugAssign,
    ast.AnnAssign, ast.If, ast.For, ast.While, ast.Break, ast.Continue, ast.Pass, ast.Expr,
    ast.expr_context, ast.boolop, ast.operator, ast.unaryop, ast.cmpop, ast.BoolOp, ast.BinOp,
    ast.UnaryOp, ast.Compare, ast.Call, ast.IfExp, ast.Name, ast.Constant, ast.Subscript, ast.Slice,
    ast.List, ast.Tuple, ast.Dict, ast.Set, ast.ListComp, ast.SetComp, ast.DictComp,
    ast.GeneratorExp, ast.comprehension, ast.Attribute, ast.keyword, ast.JoinedStr,
    ast.FormattedValue, ast.Starred,
)  # fmt: skip
_FENCE = re.compile(r"```(?:\w+)?\n(.*?)(?:```|$)", re.S)
_CHILD = """
import builtins, json, sys
try:
    import resource
    resource.setrlimit(resource.RLIMIT_CPU, (LIMIT_S, LIMIT_S))
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT_BYTES, LIMIT_BYTES))
except ImportError:
    pass
job = json.load(sys.stdin)
allowed = {name: getattr(builtins, name) for name in job["builtins"]}
space = {"__builtins__": allowed}
exec(job["code"], space)
results = [space[job["function"]](*arguments) for arguments in job["arguments"]]
print(json.dumps(results))
"""


def code_of(reply: str) -> str:
    """The first fenced block of a reply, or the reply from its first ``def`` on."""
    if found := _FENCE.search(reply):
        return found.group(1).strip("\n")
    start = re.search(r"^def ", reply, re.M)
    return reply[start.start() :] if start else reply


def why_code_fails(
    reply: str, *, function: str, cases: Sequence[Sequence[Any]], wall_s: float = WALL_S
) -> str | None:
    """None when ``function`` in the reply gives every expected result, else the reason.

    Args:
        reply: text with the code, fenced or plain.
        function: the name that must be defined.
        cases: pairs of a list of arguments and the expected result.
        wall_s: seconds that the child process may take.
    """
    code = _only_function(code_of(reply), function)
    if code is None:
        return f"no function {function}() that Python can read"
    if refused := _refused(code):
        return f"not run: {refused} is outside the harmless part of Python"
    job = {
        "code": code,
        "function": function,
        "arguments": [arguments for arguments, _ in cases],
        "builtins": sorted(BUILTINS),
    }
    results = _run(job, wall_s)
    if isinstance(results, str):
        return results
    for (arguments, expected), result in zip(cases, results, strict=True):
        if result != expected:
            shown = ", ".join(map(repr, arguments))
            return f"{function}({shown}) is {result!r}, expected {expected!r}"
    return None


def _only_function(code: str, function: str) -> str | None:
    """The source of that function alone; the longest readable beginning of a reply counts."""
    lines = code.splitlines()
    for end in range(len(lines), 0, -1):
        try:
            tree = ast.parse("\n".join(lines[:end]))
        except (SyntaxError, ValueError):
            continue
        for node in tree.body:
            if isinstance(node, ast.FunctionDef) and node.name == function:
                return ast.unparse(node)
    return None


def _refused(code: str) -> str | None:
    """The first thing in the code that is not on the lists."""
    for node in ast.walk(ast.parse(code)):
        if not isinstance(node, _NODES):
            return type(node).__name__
        if isinstance(node, ast.Attribute) and node.attr not in METHODS:
            return f".{node.attr}"
        if isinstance(node, ast.Name) and node.id.startswith("_"):
            return node.id
        if isinstance(node, ast.FunctionDef) and node.decorator_list:
            return "a decorator"
    return None


def _run(job: dict[str, Any], wall_s: float) -> list[Any] | str:
    child = _CHILD.replace("LIMIT_S", str(CPU_S)).replace("LIMIT_BYTES", str(MEMORY_BYTES))
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", child],
            input=json.dumps(job), capture_output=True, text=True, timeout=wall_s, env={},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"no result within {wall_s:g} s"
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        return f"it raised {last[:120]}"
    return json.loads(done.stdout)
