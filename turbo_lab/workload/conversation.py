"""A conversation: each turn asks with everything that was said before, the replies included."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from turbo_lab.core.errors import UsageError
from turbo_lab.workload.request import Request


@dataclass(frozen=True)
class Conversation:
    """One user's turns, in order.

    Attributes:
        turns: a request per turn; its prompt is the user's own new message, as text.
        think_s: seconds between the end of a reply and the next message.
    """

    turns: tuple[Request, ...]
    think_s: float = 0.0

    def __post_init__(self) -> None:
        """Refuse an empty conversation, and messages that cannot be joined."""
        if not self.turns:
            raise UsageError("a conversation needs at least one turn")
        if not 0 <= self.think_s < math.inf:
            raise UsageError(f"think_s is {self.think_s!r}; it must be 0 or more, and finite")
        if len(self.turns) > 1 and any(not isinstance(t.prompt, str) for t in self.turns):
            raise UsageError("the turns of a conversation are texts, not messages or token ids")

    def ask(self, turn: int, replies: Sequence[str]) -> Request:
        """The request of a turn (0 is the first), given the replies to all turns before it.

        Chat: user and assistant messages in alternation. Completions: the same as plain text.
        """
        if turn == 0:
            return self.turns[0]
        if len(replies) != turn:
            raise UsageError(f"turn {turn} needs the {turn} replies before it, not {len(replies)}")
        said = [str(t.prompt) for t in self.turns[: turn + 1]]
        request = self.turns[turn]
        if request.endpoint == "completions":
            before = [f"{text}{reply}\n" for text, reply in zip(said, replies, strict=False)]
            return replace(request, prompt="".join([*before, said[-1]]))
        messages: list[Mapping[str, Any]] = []
        for text, reply in zip(said, replies, strict=False):
            messages += [
                {"role": "user", "content": text},
                {"role": "assistant", "content": reply},
            ]
        return replace(request, prompt=[*messages, {"role": "user", "content": said[-1]}])


def conversations(items: Sequence[Request | Conversation]) -> list[Conversation]:
    """Single requests as conversations of one turn; conversations as they are."""
    return [i if isinstance(i, Conversation) else Conversation((i,)) for i in items]


def own_requests(items: Sequence[Request | Conversation]) -> list[Request]:
    """All turns in order, each with the user's own message only."""
    return [turn for item in conversations(items) for turn in item.turns]
