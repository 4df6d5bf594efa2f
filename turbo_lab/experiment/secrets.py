"""The API key must show nowhere, also where a server echoes it in a message or a reply."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TypeVar

from turbo_lab.client.stream import API_KEY_VARIABLE
from turbo_lab.metrics.timeline import Timeline
from turbo_lab.records.redact import HIDDEN, redact

Text = TypeVar("Text", str, None)


def hide_key(text: Text) -> Text:
    """The text without the API key of the environment, and without keys and passwords by form."""
    if not text:
        return text
    key = os.environ.get(API_KEY_VARIABLE)
    return redact(text.replace(key, HIDDEN) if key else text)


def without_key(timeline: Timeline) -> Timeline:
    """The same timeline; the key is hidden in its error, its attempts' errors and its text.

    Of the reply's text only the key itself is hidden, so that texts stay as they were measured.
    """
    if timeline.error or timeline.attempts:
        attempts = tuple(a._replace(error=hide_key(a.error)) for a in timeline.attempts)
        timeline = replace(timeline, error=hide_key(timeline.error), attempts=attempts)
    key = os.environ.get(API_KEY_VARIABLE)
    if key and timeline.text and key in timeline.text:
        timeline = replace(timeline, text=timeline.text.replace(key, HIDDEN))
    return timeline
