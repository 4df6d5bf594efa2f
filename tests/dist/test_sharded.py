"""The sharded model equals the unsharded one, and what was sent equals the formulas."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the cpu environment")

from turbo_lab.engines import local_model
from turbo_lab.estimate.experts import imbalance
from turbo_lab.estimate.tensor_parallel import bytes_per_layer, step_exchanges
from turbo_lab.models.spec import from_hf_config
from turbo_lab.parallel import jobs, payload
from turbo_lab.parallel.comm import Comm
from turbo_lab.parallel.grid import grid_job
from turbo_lab.parallel.launch import launch
from turbo_lab.parallel.routing import Routes, sent_routed_bytes
from turbo_lab.parallel.tally import total
from turbo_lab.parallel.weights import open_weights, random_weights, small_config, weights_from

pytestmark = pytest.mark.alone

PROMPTS = [[1, 504, 2643, 282, 4649, 314, 253], [1, 30, 40, 50, 60, 70, 80],
           [1, 9, 99, 999, 9999, 19, 199], [1, 5, 4, 3, 2, 11, 12]]  # fmt: skip
NEW = 3
TINY = small_config(num_hidden_layers=4)
ONE_KV = small_config(num_key_value_heads=1, vocab_size=97)  # a row of padding per rank
SMALL = [[1, 2, 3, 4, 95], [50, 40, 30, 20, 10], [7, 7, 7, 7, 7], [90, 80, 70, 60, 50]]


@pytest.fixture(scope="module")
def model() -> str:
    return str(local_model.prepare())


def alone(job: Any, **arguments: Any) -> dict[str, Any]:
    """The same job without any other rank: the unsharded model."""
    return job(Comm.single(), **arguments)


def three_ranks(comm: Comm, *, model: str) -> dict[str, Any]:
    """All that needs three ranks, and the unsharded model for rank 0."""
    work = {"model": model, "prompts": PROMPTS, "new_tokens": NEW}
    tensor = jobs.tensor_job(comm, **work, with_logits=True)
    pipe = jobs.pipeline_job(comm, **work, micro_batches=4, warm_up=True)
    found = {"tensor": tensor, "pipeline": pipe}
    if comm.rank == 0:
        found["reference"] = alone(jobs.tensor_job, **work, with_logits=True)
        exact = alone(jobs.tensor_job, **work, with_logits=True, dtype="float64")
        found["exact"] = exact["logits"]
    return found


def four_ranks(comm: Comm) -> dict[str, Any]:
    """Four ranks as 4, and as two groups of 2."""
    half = comm.split([[0, 1], [2, 3]])
    work = {"prompts": SMALL, "new_tokens": NEW}
    found = {
        "tensor 4": jobs.tensor_job(comm, model=TINY, **work, with_logits=True),
        "tensor 4, one KV head": jobs.tensor_job(comm, model=ONE_KV, **work, with_logits=True),
        "pipeline 2": jobs.pipeline_job(half, model=TINY, **work, micro_batches=2),
    }
    found["grid"] = grid_job(comm, model=TINY, **work, tensor=2, stages=2, micro_batches=2)
    for ranks, group in ((4, comm), (2, half)):
        for k in (2, 8):
            found[f"experts {ranks}, k {k}"] = jobs.expert_job(group, model=TINY, **work, k=k)
    found["capacity"] = jobs.expert_job(comm, model=TINY, **work, k=2, capacity_factor=0.5)
    found["clustered"] = jobs.expert_job(comm, model=TINY, **work, router="clustered")
    found["more ranks than requests"] = jobs.expert_job(
        comm, model=TINY, prompts=SMALL[:3], new_tokens=NEW
    )
    for schedule in ("GPipe", "1F1B"):
        found[schedule] = jobs.training_job(
            comm,
            model=TINY,
            tokens=SMALL,
            schedule=schedule,
            micro_batches=4,
            with_gradients=True,
            warm_up=True,
        )
    return found


@pytest.fixture(scope="module")
def three(model: str) -> tuple[dict[str, Any], ...]:
    run = launch(three_ranks, ranks=3, arguments={"model": model}, threads=1, deadline_s=150)
    assert run.backend == "gloo" and run.threads_per_rank == 1
    return run.results


@pytest.fixture(scope="module")
def four() -> tuple[dict[str, Any], ...]:
    return launch(four_ranks, ranks=4, threads=1, deadline_s=150).results


def reference(config: dict[str, Any]) -> dict[str, Any]:
    return alone(jobs.tensor_job, model=config, prompts=SMALL, new_tokens=NEW, with_logits=True)


def test_tensor_parallel_equals_the_unsharded_bundled_model(three: Any) -> None:
    whole, exact = three[0]["reference"], three[0]["exact"]
    own_error = np.abs(whole["logits"] - exact).max(axis=(1, 2))  # of float32, for each prompt
    assert np.abs(exact).max() > 10 and own_error.max() < 0.01
    for rank in three:
        error = np.abs(rank["tensor"]["logits"] - exact).max(axis=(1, 2))
        assert np.all(error < 4 * own_error), (error, own_error)
        np.testing.assert_array_equal(rank["tensor"]["tokens"], whole["tokens"])
        assert rank["tensor"]["kv_heads"] == 1
        assert rank["tensor"]["weight_bytes"] * 3 == whole["weight_bytes"]


def test_tensor_parallel_payload_equals_the_formula(three: Any, model: str) -> None:
    spec = open_weights(model).spec
    rows = len(PROMPTS)
    steps = [rows * len(PROMPTS[0])] + [rows] * (NEW - 1)  # prefill, then one token each
    wanted: dict[str, int] = {"embedding": 0, "layers": 0}
    for tokens in steps:
        for exchange in step_exchanges(spec, ranks=3, tokens=tokens, element_bytes=4):
            if exchange.where in wanted:
                wanted[exchange.where] += exchange.total_bytes
    for rank in three:
        found = rank["tensor"]["tallies"]
        layers = total(found, label="attention") + total(found, label="mlp")
        assert layers == wanted["layers"] > 0
        assert total(found, label="embedding") == wanted["embedding"]
        assert total(found, "calls", label="mlp") == len(spec.layers) * NEW
        assert total(found, label="argmax") == NEW * payload.argmax_bytes(rows=rows, ranks=3)
        assert total(found, "sent_bytes", label="mlp") == pytest.approx(layers / 2 * 4 / 3)
        logits = step_exchanges(spec, ranks=3, tokens=steps[0], element_bytes=4)[-1]
        assert rank["tensor"]["logits_bytes"] == logits.total_bytes


def test_pipeline_of_three_equals_the_unsharded_bundled_model(three: Any, model: str) -> None:
    assert three[0]["pipeline"]["tokens"] is None
    np.testing.assert_array_equal(three[2]["pipeline"]["tokens"], three[0]["reference"]["tokens"])
    spec = open_weights(model).spec
    tokens = len(PROMPTS) * (len(PROMPTS[0]) + NEW - 1)
    sent = sum(total(r["pipeline"]["tallies"], kind="send", label="activation") for r in three)
    assert sent == payload.pipeline_bytes(spec, tokens=tokens, stages=3)


def test_four_tensor_parallel_ranks_with_replicated_kv_heads(four: Any) -> None:
    for name, config in (("tensor 4", TINY), ("tensor 4, one KV head", ONE_KV)):
        whole = reference(config)
        for rank in four:
            np.testing.assert_allclose(rank[name]["logits"], whole["logits"], atol=2e-5)
            np.testing.assert_array_equal(rank[name]["tokens"], whole["tokens"])
            assert rank[name]["kv_heads"] == 1  # 2 heads or 1 head over 4 ranks


def test_pipeline_of_two_equals_the_unsharded_model(four: Any) -> None:
    whole = reference(TINY)
    for last in (1, 3):  # both groups ran it
        np.testing.assert_array_equal(four[last]["pipeline 2"]["tokens"], whole["tokens"])
    stages = {slot[0] for rank in four for slot in rank["pipeline 2"]["slots"]}
    assert stages == {0, 1}


def test_grid_of_two_stages_with_two_parts_equals_the_unsharded_model(four: Any) -> None:
    whole = reference(TINY)
    assert four[0]["grid"]["tokens"] is None is four[1]["grid"]["tokens"]
    for rank in (2, 3):
        np.testing.assert_array_equal(four[rank]["grid"]["tokens"], whole["tokens"])
    spec = from_hf_config(TINY, name="tiny")
    tokens = len(SMALL) * (len(SMALL[0]) + NEW - 1)
    for rank in four:
        rows = rank["grid"]["tensor_tallies"]
        layers = total(rows, label="attention") + total(rows, label="mlp")
        assert layers == bytes_per_layer(spec, tokens=tokens, element_bytes=4) * 2  # of 4 layers
    sent = sum(total(r["grid"]["pipeline_tallies"], kind="send", label="activation") for r in four)
    assert sent == 2 * payload.pipeline_bytes(spec, tokens=tokens, stages=2)  # each part its own


@pytest.mark.parametrize("ranks", [2, 4])
def test_experts_over_ranks_equal_the_unsharded_moe_and_all_of_them_the_dense_model(
    four: Any, ranks: int
) -> None:
    dense = reference(TINY)["tokens"]
    for k in (2, 8):
        whole = alone(jobs.expert_job, model=TINY, prompts=SMALL, new_tokens=NEW, k=k)
        spread = np.concatenate([r[f"experts {ranks}, k {k}"]["tokens"] for r in four[:ranks]])
        np.testing.assert_array_equal(spread, whole["tokens"])
        if k == 8:
            np.testing.assert_array_equal(spread, dense)
    loads = np.sum([[f["load"] for f in r[f"experts {ranks}, k 2"]["prefill"]] for r in
                    four[:ranks]], axis=0)  # fmt: skip
    two = alone(jobs.expert_job, model=TINY, prompts=SMALL, new_tokens=NEW, k=2)["prefill"]
    np.testing.assert_array_equal(loads, [facts["load"] for facts in two])
    assert max(imbalance(load.tolist()) for load in loads) > 1.2  # a random router is not balanced


def test_routed_bytes_equal_the_formula_exactly(four: Any) -> None:
    layers, pairs = TINY["num_hidden_layers"], 2
    for found in four:
        rows = found["experts 4, k 2"]["tallies"]
        tokens = 1 * (len(SMALL[0]) + NEW - 1)  # one request for each of four ranks
        assert total(rows, label="dispatch") == layers * tokens * pairs * TINY["hidden_size"] * 4
        assert total(rows, label="counts") == layers * NEW * 8 * 8
        facts = found["experts 4, k 2"]["prefill"]
        assert sum(f["dispatch_bytes"] for f in facts) == (
            layers * len(SMALL[0]) * pairs * TINY["hidden_size"] * 4
        )
        assert facts[0]["rows_to_ranks"] == [sum(facts[0]["load"][2 * r : 2 * r + 2])
                                             for r in range(4)]  # fmt: skip
    back = sum(total(r["experts 4, k 2"]["tallies"], label="combine") for r in four)
    assert back == sum(total(r["experts 4, k 2"]["tallies"], label="dispatch") for r in four)


def test_capacity_drops_the_same_pairs_as_the_unsharded_layer(four: Any) -> None:
    shares = [facts["dropped_share"] for r in four for facts in r["capacity"]["prefill"]]
    assert max(shares) > 0.1
    for rank, prompt in zip(four, SMALL, strict=True):  # capacity counts each rank's own tokens
        whole = alone(
            jobs.expert_job, model=TINY, prompts=[prompt], new_tokens=NEW, capacity_factor=0.5
        )
        np.testing.assert_array_equal(rank["capacity"]["tokens"], whole["tokens"])


def test_a_rank_without_requests_still_serves_its_experts(four: Any) -> None:
    whole = alone(jobs.expert_job, model=TINY, prompts=SMALL[:3], new_tokens=NEW)
    spread = [r["more ranks than requests"]["tokens"] for r in four]
    assert spread[3].shape == (0, NEW)
    np.testing.assert_array_equal(np.concatenate(spread), whole["tokens"])


def test_clustered_router_is_the_same_on_all_ranks(four: Any) -> None:
    whole = alone(jobs.expert_job, model=TINY, prompts=SMALL, new_tokens=NEW, router="clustered")
    spread = np.concatenate([r["clustered"]["tokens"] for r in four])
    np.testing.assert_array_equal(spread, whole["tokens"])


@pytest.mark.parametrize("schedule", ["GPipe", "1F1B"])
def test_pipeline_gradients_equal_the_unsharded_ones(four: Any, schedule: str) -> None:
    whole = alone(
        jobs.training_job, model=TINY, tokens=SMALL, schedule="GPipe", micro_batches=1,
        with_gradients=True,
    )  # fmt: skip
    assert four[3][schedule]["loss"] == pytest.approx(whole["loss"], rel=1e-5)
    found = {name: g for rank in four for name, g in rank[schedule]["gradients"].items()}
    assert found.keys() == whole["gradients"].keys() and "0.query" in found
    for name, gradient in whole["gradients"].items():
        assert np.abs(gradient).max() > 1e-5
        np.testing.assert_allclose(found[name], gradient, atol=1e-5)
    kinds = [slot[2] for slot in four[0][schedule]["slots"]]
    first_backward = kinds.index("backward")
    assert first_backward == 4  # p - 1 ahead and one more, or all of m


def test_own_forward_pass_equals_transformers() -> None:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = {**small_config(num_key_value_heads=1), "tie_word_embeddings": True}
    theirs = LlamaForCausalLM(LlamaConfig(**config)).eval()
    ours = weights_from(config, theirs.state_dict())
    from turbo_lab.parallel.stage import Stage

    tokens = torch.tensor(SMALL)
    with torch.inference_mode():
        wanted = theirs(tokens).logits
        found = Stage(ours, comm=Comm.single()).logits(tokens)
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)
    assert random_weights(config).spec.tied_embeddings


def test_sent_bytes_leave_out_what_stays_on_the_rank() -> None:
    routes = Routes(np.array([[0, 3], [1, 2]]), np.ones((2, 2)), 4)
    assert sent_routed_bytes(routes, rank=0, ranks=2, hidden=8) == 2 * 8 * 4
