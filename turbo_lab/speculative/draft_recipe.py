"""How the draft is made: every number that decides its data and its training."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Self

from turbo_lab.core.errors import UsageError, did_you_mean
from turbo_lab.records.digest import digest_of

MAX_PACK_BYTES = 25_000_000  # what the repository accepts as one file of weights


@dataclass(frozen=True, kw_only=True)
class DataRecipe:
    """What the teacher writes. Equal recipes on one machine give equal text, token for token.

    ``rounds`` of ``rows`` conversations each; ``reply_tokens`` and ``turn_tokens`` bound a reply
    and a user's turn that the teacher invents itself; ``held_out``: conversations of each class
    that are never trained on, half of them to choose the best weights, half to measure those.
    """

    seed: int = 0
    rounds: int = 18
    rows: int = 256
    reply_tokens: int = 128
    turn_tokens: int = 48
    held_out: int = 32

    def __post_init__(self) -> None:
        """Refuse sizes below what a run needs."""
        for name, least in (("rounds", 1), ("rows", 1), ("reply_tokens", 2), ("turn_tokens", 2),
                            ("held_out", 2)):  # fmt: skip
            if getattr(self, name) < least:
                raise UsageError(f"{name} is {getattr(self, name)}; it must be at least {least}")


@dataclass(frozen=True, kw_only=True)
class TrainRecipe:
    """How the draft learns.

    ``layers``: the teacher's layers that it starts from. ``epochs`` over the data in batches of
    about ``batch_tokens``. ``frequent``, ``random``: words of the vocabulary that a step compares,
    besides those of its own batch. ``hard``, ``logit``, ``prompt``: weights of the other loss terms
    (see ``draft_loss``). ``check_steps``: steps between two looks at held-out text.
    """

    layers: tuple[int, ...] = (0, 1, 29)
    epochs: int = 2
    batch_tokens: int = 2048
    learning_rate: float = 0.02
    warmup_steps: int = 40
    weight_decay: float = 0.1
    frequent: int = 6144
    random: int = 1024
    hard: float = 0.2
    logit: float = 0.0
    prompt: float = 0.3
    check_steps: int = 150

    def __post_init__(self) -> None:
        """Refuse a recipe that cannot train, and lists where a tuple is meant."""
        object.__setattr__(self, "layers", tuple(self.layers))
        if not self.layers or list(self.layers) != sorted(set(self.layers)):
            raise UsageError(f"layers are {self.layers}; name the teacher's layers in rising order")
        for name in ("epochs", "batch_tokens", "frequent", "check_steps"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} is {getattr(self, name)}; it must be at least 1")


@dataclass(frozen=True, kw_only=True)
class DraftRecipe:
    """Data and training together."""

    data: DataRecipe = field(default_factory=DataRecipe)
    train: TrainRecipe = field(default_factory=TrainRecipe)

    @classmethod
    def make(cls, **values: Any) -> Self:
        """A recipe from names of both parts; an unknown name is an error that lists the known."""
        parts = {"data": DataRecipe, "train": TrainRecipe}
        names = {part: [f.name for f in dataclasses.fields(kind)] for part, kind in parts.items()}
        known = [name for part in names.values() for name in part]
        for name in values:
            if name not in known:
                raise UsageError(f"the recipe has no {name!r}.{did_you_mean(name, known)}")
        return cls(**{
            part: kind(**{name: values[name] for name in names[part] if name in values})
            for part, kind in parts.items()
        })  # fmt: skip

    def as_dict(self) -> dict[str, Any]:
        """Plain data for recipe.json."""
        return dataclasses.asdict(self)


def data_key(recipe: DataRecipe, *, teacher: str, prompts: str) -> str:
    """Short name of the data that this recipe gives: one folder for each.

    ``teacher``, ``prompts``: digests of the teacher and of the file of prompts.
    """
    parts = {"recipe": dataclasses.asdict(recipe), "teacher": teacher, "prompts": prompts}
    return digest_of(parts)[7:19]


def train_key(recipe: TrainRecipe, *, data: str) -> str:
    """Short name of one training on data of this digest."""
    return digest_of({"recipe": dataclasses.asdict(recipe), "data": data})[7:19]
