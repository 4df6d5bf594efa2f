"""Pipeline parallelism in closed form: the share of time in which stages wait for each other.

Letters: p stages, m micro-batches, v chunks of layers per stage. Inference has only the forward
part of these schedules; training the backward part too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from turbo_lab.core.errors import UsageError, did_you_mean
from turbo_lab.models.matrices import layer_matrices
from turbo_lab.models.spec import ModelSpec

SCHEDULES = ("GPipe", "1F1B", "interleaved", "ZB1P", "DualPipe")


def bubble_over_ideal(stages: int, *, micro_batches: int, chunks_per_stage: int = 1) -> float:
    """Idle time over the time of the work: ``(p-1) / (v m)``.

    GPipe and 1F1B have the same (v = 1); 1F1B holds fewer activations. Interleaving v chunks per
    stage divides it by v and sends v times the messages. Source: Narayanan et al., arXiv
    2104.04473, section 2.2.
    """
    _require(stages=stages, micro_batches=micro_batches, chunks_per_stage=chunks_per_stage)
    return (stages - 1) / (chunks_per_stage * micro_batches)


def bubble_fraction(stages: int, *, micro_batches: int, chunks_per_stage: int = 1) -> float:
    """Idle time over all time: ``(p-1) / (v m + p - 1)``."""
    ideal = bubble_over_ideal(
        stages, micro_batches=micro_batches, chunks_per_stage=chunks_per_stage
    )
    return ideal / (1 + ideal)


def pipeline_s(stages: int, *, micro_batches: int, stage_s: float, send_s: float = 0.0) -> float:
    """Seconds until the last stage has finished: ``(m + p - 1) * stage + (p - 1) * send``.

    All stages take ``stage_s`` per micro-batch; ``send_s`` passes one on and overlaps with the work
    on the next, as long as it is no longer than ``stage_s`` (else the links set the pace).
    """
    _require(stages=stages, micro_batches=micro_batches)
    if stage_s < 0 or send_s < 0:
        raise UsageError(f"stage_s {stage_s} and send_s {send_s} must be 0 or more")
    pace_s = max(stage_s, send_s) if stages > 1 else stage_s
    return stages * stage_s + (stages - 1) * send_s + (micro_batches - 1) * pace_s


def uneven_pipeline_s(stage_s: list[float], *, micro_batches: int) -> float:
    """The same with stages of different speed: the slowest sets the pace.

    ``sum(stage) + (m - 1) * max(stage)``.
    """
    _require(stages=len(stage_s), micro_batches=micro_batches)
    if min(stage_s) < 0:
        raise UsageError(f"stage_s {stage_s}: times must be 0 or more")
    return sum(stage_s) + (micro_batches - 1) * max(stage_s)


def decode_round_s(stage_s: Sequence[float], *, micro_batches: int) -> float:
    """Seconds in which every micro-batch gets one token, once decoding runs evenly.

    ``max(sum(stage), m * max(stage))``: a micro-batch waits for its own token of the round before
    (few micro-batches), or the slowest stage is never idle (many). ``stage_s`` belongs to one
    micro-batch. One request alone gets a token per ``sum(stage)``, whatever the number of stages.
    """
    _require(stages=len(stage_s), micro_batches=micro_batches)
    if min(stage_s) < 0:
        raise UsageError(f"stage_s {list(stage_s)}: times must be 0 or more")
    return max(sum(stage_s), micro_batches * max(stage_s))


def kept_micro_batches(schedule: str, *, stages: int, stage: int, micro_batches: int) -> int:
    """Most micro-batches whose activations a stage keeps for the backward pass.

    GPipe: all m. 1F1B: ``min(m, p - stage)``, for its bubble is the same. Source: Narayanan et
    al., arXiv 2104.04473, section 2.2. Raises UsageError for another schedule.
    """
    _require(stages=stages, micro_batches=micro_batches)
    if not 0 <= stage < stages:
        raise UsageError(f"stage is {stage}; allowed: 0 to {stages - 1}")
    if schedule == "GPipe":
        return micro_batches
    if schedule == "1F1B":
        return min(micro_batches, stages - stage)
    raise UsageError(f"schedule is {schedule!r}.{did_you_mean(schedule, ['GPipe', '1F1B'])}")


def stage_weight_bytes(
    spec: ModelSpec, stages: Sequence[range], *, element_bytes: int = 2
) -> list[int]:
    """Bytes of the matrices of each stage: its layers, the embedding first, the head last.

    With tied embeddings both ends hold the same matrix, so several stages hold more than one.
    Norms and biases are left out (under a thousandth).
    """
    vocabulary, found = spec.vocab * spec.hidden, []
    for number, layers in enumerate(stages):
        held = sum(m.elements for n in layers for m in layer_matrices(spec, spec.layers[n]))
        last = number == len(stages) - 1
        shared = last and number == 0 and spec.tied_embeddings
        held += vocabulary * ((number == 0) + last - shared)
        found.append(held * element_bytes)
    return found


def micro_batches_for(bubble: float, *, stages: int) -> int:
    """Fewest micro-batches with an idle share of all time of at most ``bubble``."""
    if not 0 < bubble < 1:
        raise UsageError(f"the bubble is {bubble}; allowed: between 0 and 1")
    _require(stages=stages)
    found = max(1, int((stages - 1) * (1 - bubble) / bubble))
    while bubble_fraction(stages, micro_batches=found) > bubble:
        found += 1
    return found


@dataclass(frozen=True)
class ChunkTimes:
    """Seconds of one micro-batch on one stage.

    ``backward_s``: the full backward pass; ``weights_s``: the part of it that only the weights
    need; ``together_s``: a forward and a backward overlapped (None: their sum, no gain).
    """

    forward_s: float
    backward_s: float
    weights_s: float = 0.0
    together_s: float | None = None


def training_bubble_s(schedule: str, stages: int, times: ChunkTimes, *, chunks: int = 1) -> float:
    """Idle seconds of a training step on each stage.

    - GPipe, 1F1B: ``(p-1) (F + B)``; interleaved: the same over ``chunks``.
    - ZB1P: ``(p-1) (F + B - 2 W)``.
    - DualPipe: ``(p/2 - 1) (F&B + B - 3 W)``, for an even number of stages.

    Source: deepseek-ai/DualPipe, README; Narayanan et al. for the interleaved one.
    Raises UsageError for an unknown schedule, or an odd number of stages with DualPipe.
    """
    _require(stages=stages, chunks=chunks)
    forward, backward, weights = times.forward_s, times.backward_s, times.weights_s
    if schedule in ("GPipe", "1F1B"):
        return (stages - 1) * (forward + backward)
    if schedule == "interleaved":
        return (stages - 1) * (forward + backward) / chunks
    if schedule == "ZB1P":
        return (stages - 1) * (forward + backward - 2 * weights)
    if schedule == "DualPipe":
        if stages % 2:
            raise UsageError(f"DualPipe runs from both ends; {stages} stages are no even number")
        both = times.together_s if times.together_s is not None else forward + backward
        return (stages / 2 - 1) * (both + backward - 3 * weights)
    hint = did_you_mean(schedule, list(SCHEDULES))
    raise UsageError(f"There is no schedule {schedule!r}.{hint}")


def _require(**counts: int) -> None:
    for name, value in counts.items():
        if value < 1:
            raise UsageError(f"{name} is {value}; allowed: 1 or more")
