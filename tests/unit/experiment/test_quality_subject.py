"""Scores of a model in this process: against torch's own loss, in chunks, with any cache."""

from __future__ import annotations

import math
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the cpu environment")
transformers = pytest.importorskip("transformers", reason="needs the cpu environment")

from turbo_lab.core.errors import UsageError  # noqa: E402
from turbo_lab.experiment.quality_logits import token_scores  # noqa: E402
from turbo_lab.experiment.quality_prompts import load_prompts  # noqa: E402
from turbo_lab.experiment.quality_subject import (  # noqa: E402
    Subject,
    greedy_replies,
    greedy_reply,
    own_scores,
    reference_text,
    score_text,
)
from turbo_lab.experiment.quality_table import text_quality  # noqa: E402

TEXTS = ("the tide clock has one hand " * 4, "a second text")


class Letters:
    """A tokenizer of one token per character."""

    eos_token_id = 95

    def __call__(self, text: str, **options: Any) -> dict[str, Any]:
        return {"input_ids": torch.tensor([[ord(c) % 95 for c in text]])}

    def apply_chat_template(self, messages: list[dict[str, str]], **options: Any) -> str:
        return f"<{messages[0]['content'][:20]}>"

    def decode(self, ids: list[int]) -> str:
        return "".join(chr(32 + i % 90) for i in ids)


@pytest.fixture(scope="module")
def subject() -> Subject:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=96, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, initializer_range=0.2, eos_token_id=95,
    )  # fmt: skip
    return Subject("tiny", transformers.LlamaForCausalLM(config).eval(), Letters())


@pytest.mark.parametrize("chunk", [5, 1000])
def test_the_mean_loss_is_that_of_the_model_itself(subject, chunk):
    reference = reference_text(subject, TEXTS, chunk_tokens=chunk)
    found = score_text(subject, reference)
    total = 0.0
    with torch.inference_mode():
        for ids in reference.ids:
            total += float(subject.model(ids[None], labels=ids[None]).loss) * (len(ids) - 1)
    assert len(found.nll) == reference.scored_tokens == sum(len(t) - 1 for t in TEXTS)
    assert sum(found.nll) / len(found.nll) == pytest.approx(total / len(found.nll), rel=1e-4)
    assert set(found.kl) == {0.0} and all(found.same_top)  # against itself: exactly nothing
    assert own_scores(reference) == found


def test_kl_by_hand_and_never_below_zero():
    p, q = torch.tensor([[0.7, 0.2, 0.1]]), torch.tensor([[0.5, 0.3, 0.2]])
    found = token_scores(q.log(), reference=p.log(), targets=torch.tensor([2]))
    by_hand = sum(a * math.log(a / b) for a, b in zip(p[0].tolist(), q[0].tolist(), strict=True))
    assert found.kl[0] == pytest.approx(by_hand, rel=1e-5)
    assert found.nll[0] == pytest.approx(-math.log(0.2), rel=1e-5) and found.same_top == (True,)
    logits = torch.randn(50, 40, generator=torch.Generator().manual_seed(0)) * 5
    other = logits + torch.randn(50, 40, generator=torch.Generator().manual_seed(1))
    scores = token_scores(other, reference=logits, targets=torch.zeros(50, dtype=torch.long))
    assert min(scores.kl) > 0 and not all(scores.same_top)
    with pytest.raises(UsageError, match="tokenizer"):
        token_scores(other, reference=logits[:, :39], targets=torch.zeros(50, dtype=torch.long))


def test_another_model_shows_a_difference(subject):
    other = transformers.LlamaForCausalLM(subject.model.config).eval()
    reference = reference_text(subject, TEXTS, chunk_tokens=8)
    own, theirs = score_text(subject, reference), score_text(Subject("b", other, Letters()),
                                                             reference)  # fmt: skip
    found = text_quality(own, theirs, block_tokens=8)
    assert found.kl.shown and found.other_top.candidate > 0.2


def test_greedy_replies_equal_generate_and_do_not_depend_on_the_chunks(subject):
    prompts = load_prompts(["facts"], per_kind=3)
    whole = greedy_replies(subject, prompts)
    assert whole == greedy_replies(subject, prompts, prefill_tokens=4)
    for prompt, reply in zip(prompts, whole, strict=True):
        ids = subject.encode(
            subject.tokenizer.apply_chat_template([{"role": "user", "content": prompt.text}])
        )
        with torch.inference_mode():
            told = subject.model.generate(
                ids[None], max_new_tokens=prompt.max_tokens, do_sample=False, pad_token_id=0
            )
        wanted = [t for t in told[0, len(ids) :].tolist() if t != 95]
        assert list(reply.tokens) == wanted and reply.prompt_id == prompt.id


def test_an_attached_cache_is_entered_around_every_pass(subject):
    entered = []

    class Watched(transformers.DynamicCache):
        def attached(self, model):
            import contextlib

            entered.append(model)
            return contextlib.nullcontext()

    made = subject.with_cache("watched", lambda: Watched(config=subject.model.config))
    reply = greedy_reply(made, load_prompts(["facts"])[0])
    assert len(entered) >= max(1, len(reply.tokens)) and entered[0] is subject.model


def test_nothing_to_score_is_refused(subject):
    with pytest.raises(UsageError, match="fewer than two"):
        reference_text(subject, ["a"])
    with pytest.raises(UsageError, match="chunk_tokens is 0"):
        reference_text(subject, TEXTS, chunk_tokens=0)
