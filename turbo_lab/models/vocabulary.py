"""Can one model guess for another? Draft and target must mean the same tokens by the same ids."""

from __future__ import annotations

from dataclasses import dataclass

from turbo_lab.models.spec import ModelSpec

PADDING = 512  # checkpoints pad their embeddings to multiples of at most this many rows


@dataclass(frozen=True)
class VocabularyMatch:
    """What the sizes in config.json tell. True where they are equal (``bool(match)``)."""

    target_tokens: int
    draft_tokens: int
    reason: str

    def __bool__(self) -> bool:
        return self.target_tokens == self.draft_tokens


def vocabularies_match(target: ModelSpec, *, draft: ModelSpec) -> VocabularyMatch:
    """Compare ``vocab_size``, as vLLM 0.32 does before it loads a draft model.

    Equal sizes are needed there, and they prove little: two tokenizers of one size pass, and the
    draft's guesses are then never right. Source: vLLM, ``SpeculativeConfig
    .verify_equal_vocab_size_if_draft_model``.
    """
    sizes = (
        f"{target.name} has {target.vocab:,} rows in its vocabulary, {draft.name} {draft.vocab:,}"
    )
    difference = abs(target.vocab - draft.vocab)
    if not difference:
        reason = (
            f"{sizes}: equal, so vLLM takes the pair. It compares the sizes alone; that equal ids "
            "mean equal tokens follows only from the same tokenizer"
        )
    elif difference < PADDING:
        reason = (
            f"{sizes}: vLLM refuses the pair. {difference} rows are few enough to be padding of "
            "one and the same tokenizer, but vLLM does not look; its use_heterogeneous_vocab would"
        )
    else:
        reason = (
            f"{sizes}: vLLM refuses the pair. The {difference:,} rows between them are different "
            "tokens; its use_heterogeneous_vocab would confine the draft to the common ones"
        )
    return VocabularyMatch(target.vocab, draft.vocab, reason)
