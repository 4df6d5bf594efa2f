"""A run of layers of one model on one rank: the whole model, or one stage of a pipeline."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch

from turbo_lab.core.errors import UsageError
from turbo_lab.parallel.comm import Comm
from turbo_lab.parallel.partition import tensor_part
from turbo_lab.parallel.tensor import (
    Block,
    FeedForward,
    KVCache,
    VocabEmbedding,
    VocabHead,
    rms_norm,
)
from turbo_lab.parallel.weights import Weights

Tensor = torch.Tensor


@dataclass
class Caches:
    """The KV caches of a stage for one batch of requests, one for each layer."""

    layers: list[KVCache] = field(default_factory=list)

    @classmethod
    def for_stage(cls, stage: Stage) -> Caches:
        """Empty caches."""
        return cls([KVCache() for _ in stage.blocks])

    @property
    def tokens(self) -> int:
        """Tokens stored for each request."""
        return self.layers[0].tokens


class Stage:
    """Layers ``layers`` of a model, split over the tensor-parallel ranks of ``comm``.

    With the first layer comes the embedding, with the last the norm and the head. With all layers
    and ``Comm.single()`` it is the unsharded model: there is one forward pass, not two.
    ``feed_forward``: makes the part that replaces the SwiGLU of a layer, given its number.
    """

    def __init__(
        self,
        weights: Weights,
        *,
        comm: Comm,
        layers: range | None = None,
        feed_forward: Callable[[int], FeedForward] | None = None,
    ) -> None:
        count = len(weights.spec.layers)
        self.layers = range(count) if layers is None else layers
        if not self.layers or self.layers.start < 0 or self.layers.stop > count:
            raise UsageError(f"layers is {self.layers}; allowed: a part of 0 to {count - 1}")
        part = tensor_part(weights.spec, rank=comm.rank, ranks=comm.size)
        first, last = self.layers.start == 0, self.layers.stop == count
        self.embedding = VocabEmbedding(weights, part=part, comm=comm) if first else None
        self.head = VocabHead(weights, part=part, comm=comm) if last else None
        self.norm = weights.read("model.norm.weight") if last else None
        self.blocks = [
            Block(weights, n, comm=comm, feed_forward=feed_forward(n) if feed_forward else None)
            for n in self.layers
        ]
        self.spec, self._eps, self.device = weights.spec, weights.eps, weights.device

    def hidden(self, inputs: Tensor, caches: Caches) -> Tensor:
        """Token ids [B, T] (first stage) or activations [B, T, H] to activations [B, T, H].

        After the last layer they are normalised, ready for the head.
        """
        state = self.embedding(inputs) if self.embedding else inputs
        for block, cache in zip(self.blocks, caches.layers, strict=True):
            state = block(state, cache)
        return state if self.norm is None else rms_norm(state, self.norm, self._eps)

    def logits(self, tokens: Tensor, caches: Caches | None = None) -> Tensor:
        """Logits [B, T, vocab] of token ids [B, T]. Only for a stage with all layers."""
        if self.head is None or self.embedding is None:
            raise UsageError(f"this stage has layers {self.layers}; logits need all of them")
        return self.head(self.hidden(tokens, caches or Caches.for_stage(self)))

    def generate(self, prompts: Tensor, *, new_tokens: int) -> Tensor:
        """Greedy continuation [B, new_tokens] of prompts [B, T] of one length.

        One prefill, then one decode step per token with the KV cache.
        """
        return torch.stack(list(self.steps(prompts, new_tokens=new_tokens)), dim=1)

    def steps(self, prompts: Tensor, *, new_tokens: int) -> Iterator[Tensor]:
        """The tokens [B] of ``generate``, one step at a time."""
        if self.head is None or self.embedding is None:
            raise UsageError(f"this stage has layers {self.layers}; generating needs all of them")
        caches = Caches.for_stage(self)
        tokens = prompts
        with torch.inference_mode():
            for _ in range(new_tokens):
                best = self.head.argmax(self.hidden(tokens, caches)[:, -1])
                yield best
                tokens = best[:, None]

    def parameters(self) -> dict[str, Tensor]:
        """This rank's share of the weights, by a name within the stage."""
        found: dict[str, Tensor] = {}
        for number, block in zip(self.layers, self.blocks, strict=True):
            attention = block.attention
            for name in ("query", "key", "value", "out"):
                found[f"{number}.{name}"] = getattr(attention, name).weight
            for name in ("gate", "up", "down"):
                if hasattr(block.feed_forward, name):
                    found[f"{number}.{name}"] = getattr(block.feed_forward, name).weight
        if self.embedding:
            found["embedding"] = self.embedding.weight
        if self.head:
            found["head"] = self.head.weight
        return found

    def norms(self) -> list[Tensor]:
        """Weights of the normalisations, which ``parameters`` leaves out."""
        found = [norm for block in self.blocks for norm in (*block.norms, *block.attention.norms)]
        return [norm for norm in (*found, self.norm) if norm is not None]
