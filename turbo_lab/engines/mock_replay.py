"""A stream as a script of the mock server: the same chunks at the same times."""

from __future__ import annotations

from collections.abc import Sequence

from turbo_lab.core.errors import UsageError
from turbo_lab.engines.mock_script import Reply, Step, event, payload
from turbo_lab.metrics.timeline import Timeline


def reply_of(timeline: Timeline, *, texts: Sequence[str] = ()) -> Reply:
    """A reply that sends the timeline's chunks when they came, counted from the request.

    Every chunk carries continuous usage, so a client learns the token counts. ``texts`` are what
    the visible chunks say, in order (default: a letter per token). The finish reason goes out with
    the last visible chunk.

    Raises:
        UsageError: a chunk that cannot be played: an error, or text without a token count.
    """
    start_s = timeline.sent_s or 0.0
    visible, said, counted, before_s = len(timeline.visible()), 0, 0, start_s
    steps: list[Step] = []
    for chunk in timeline.events():
        after_s, before_s = chunk.t_s - before_s, chunk.t_s
        if chunk.kind == "done":
            steps.append(event("[DONE]", after_s=after_s))
            continue
        if chunk.kind not in ("role", "content", "usage"):
            raise UsageError(f"a chunk of kind {chunk.kind!r} cannot be played by the mock server")
        text = None
        if chunk.kind == "content":
            if chunk.tokens is None:
                raise UsageError("a chunk with text needs a token count to be played")
            counted += chunk.tokens
            text = texts[said] if said < len(texts) else "x" * chunk.tokens
            said += 1
        ends = chunk.kind == "content" and said == visible
        usage = {"completion_tokens": counted}
        data = payload(text, role=chunk.kind == "role", usage=usage,
                       finish=timeline.finish_reason if ends else None)  # fmt: skip
        steps.append(event(data, after_s=after_s))
    return Reply(steps=tuple(steps))
