"""The project's errors. Each message names the wrong value, the allowed ones and the next step."""

from __future__ import annotations


class TurboLabError(Exception):
    """Base of every error that the project raises on purpose. Exit code 1 on the command line."""

    exit_code = 1


class UsageError(TurboLabError):
    """The call itself is wrong (an unknown name, a value out of range). Exit code 2."""

    exit_code = 2


class MissingDependencyError(TurboLabError):
    """A package of another environment is needed; the message carries the install line."""

    def __init__(self, package: str, *, needed_for: str, kind: str = "cpu") -> None:
        super().__init__(
            f"{package} is not installed here, and {needed_for} needs it. "
            f"Install the {kind} environment: python scripts/install.py {kind}"
        )


class ConfigError(UsageError):
    """A model's config.json is missing a field, contradicts itself or names an unknown kind."""


class EngineError(TurboLabError):
    """An inference server could not start, died or answered wrongly."""


class DistributedError(TurboLabError):
    """A run over several processes failed; the message names the rank that failed first."""


class UnmeasuredError(TurboLabError):
    """A measurement failed. Its message is the reason shown as ``unmeasured: reason``."""


class DownloadError(TurboLabError):
    """A file could not be fetched, or what came is not the file that was promised."""


class AnswerError(TurboLabError):
    """An exercise's answer is not correct, where a graded cell must fail then."""


class RecordError(TurboLabError):
    """A record is missing, damaged or does not match its schema or digest."""


def did_you_mean(wrong: str, allowed: list[str]) -> str:
    """A short hint: the closest allowed names first, then all of them."""
    import difflib

    close = difflib.get_close_matches(wrong, allowed, n=2)
    hint = f" Did you mean {' or '.join(repr(c) for c in close)}?" if close else ""
    return f"{hint} Allowed: {', '.join(sorted(allowed))}."
