"""Tools of the chain, each in a process of its own, as agents run theirs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence

from turbo_lab.core import host
from turbo_lab.core.errors import TurboLabError, UsageError, did_you_mean

TOOL_TIMEOUT_S = 60.0
# Numbers and + - * / only; the process is isolated and sees no site packages.
CALCULATOR = """
import ast, operator, sys
known = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
         ast.Div: operator.truediv}
def value(node):
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return node.value
    if isinstance(node, ast.BinOp) and type(node.op) in known:
        return known[type(node.op)](value(node.left), value(node.right))
    sys.exit("only numbers and + - * / are known")
print(value(ast.parse(sys.argv[1], mode="eval").body))
"""


def calculate(expression: str) -> str:
    """Sum, difference, product or quotient, computed by an isolated interpreter.

    Raises TurboLabError with the tool's own words when it refuses.
    """
    return _run(["-I", "-S", "-c", CALCULATOR, expression])


def estimate(model: str, what: str) -> str:
    """One number of ``turbo-lab estimate MODEL``: the project's own command as a tool.

    Raises UsageError for a number that it does not give, TurboLabError when it fails.
    """
    told = json.loads(_run(["-m", "turbo_lab.cli.main", "estimate", model, "--json"]))
    if what not in told:
        raise UsageError(f"estimate has no {what!r}.{did_you_mean(what, sorted(told))}")
    return f"{what} of {model} = {told[what]}"


TOOLS = ("calculate", "estimate")


def run_tool(tool: Sequence[str]) -> str:
    """Run one tool by name. Raises UsageError for an unknown one."""
    name, *arguments = tool
    if name == "calculate":
        return f"{arguments[0]} = {calculate(*arguments)}"
    if name == "estimate":
        return estimate(*arguments)
    raise UsageError(f"there is no tool {name!r}.{did_you_mean(name, list(TOOLS))}")


def _run(words: Sequence[str]) -> str:
    done = subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, timeout=TOOL_TIMEOUT_S,
        cwd=host.repository_root(),
    )  # fmt: skip
    if done.returncode:
        raise TurboLabError(f"the tool failed: {(done.stderr or done.stdout).strip()[-300:]}")
    return done.stdout.strip()
