"""Real vLLM split over three ranks beside an unsplit one: same text, pools to the token, refusals.

Nothing here judges a time. Split over two cores the server is slower, and notebook 09 says why.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from turbo_lab.core.config import resolve_dials
from turbo_lab.core.errors import UsageError
from turbo_lab.core.units import GiB
from turbo_lab.engines import local_model
from turbo_lab.engines.args import VllmArgs
from turbo_lab.engines.pool import pool_session
from turbo_lab.engines.pool_reading import read_pools
from turbo_lab.engines.vllm_server import VllmServer
from turbo_lab.estimate.capacity import capacity
from turbo_lab.estimate.deployment import Deployment
from turbo_lab.estimate.tensor_parallel import require_split
from turbo_lab.models.memory import kv_bytes_per_token
from turbo_lab.models.spec import ModelSpec, from_hf_config
from turbo_lab.parallel import tensor_servers as servers
from turbo_lab.parallel.tensor_study import PROMPTS, prompt_ids

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(900), pytest.mark.alone]
pytest.importorskip("vllm", reason="needs the cpu environment")

RANKS, REPLY = 3, 24
Pair = dict[int, VllmServer]


@pytest.fixture(scope="module")
def single_args() -> VllmArgs:
    return servers.single_args(resolve_dials("cpu"))


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """An unsplit server (the off-control) and one split over three ranks."""
    dials = resolve_dials("cpu")
    with pool_session(tmp_path_factory.mktemp("pool")):
        single = servers.ready(dials, beside=(RANKS,))
        yield {1: single, RANKS: servers.ready(dials, ranks=RANKS)}


@pytest.fixture(scope="module")
def spec(pair: Pair) -> ModelSpec:
    folder = local_model.snapshot_folder(pair[1].args.model)
    return from_hf_config(json.loads((folder / "config.json").read_text()))


def pool(spec: ModelSpec, server_args: VllmArgs) -> Any:
    served = Deployment(
        platform="cpu", dtype=server_args.dtype, tensor_parallel=server_args.tensor_parallel_size
    )
    return capacity(spec, kv_cache_bytes=GiB, max_len=server_args.max_model_len, deployment=served)


def test_copied_heads_do_not_enlarge_the_pool(single_args: VllmArgs, tmp_path: Path) -> None:
    """With one KV head for all, each rank keeps it: the split server holds no more tokens."""
    config = json.loads((Path(single_args.model) / "config.json").read_text())
    # vLLM pads a vocabulary to a multiple of 64 and no further, so 64 * RANKS must divide it.
    config |= {"num_key_value_heads": 1, "num_hidden_layers": 2, "vocab_size": 16 * 64 * RANKS}
    (tmp_path / "config.json").write_text(json.dumps(config))
    whole = single_args.replace(
        model=str(tmp_path), load_format="dummy", extra=(("--skip-tokenizer-init", ""),)
    )
    cases = {"whole": whole, "split": servers.split_args(whole, ranks=RANKS)}
    told = read_pools(cases, at_once=1)
    spec = from_hf_config(config)
    assert told["split"]["tokens"] == told["whole"]["tokens"] == pool(spec, whole).tokens, told
    assert pool(spec, cases["split"]).tokens == told["split"]["tokens"]


def test_vllm_refuses_what_our_rule_refuses_for_the_heads(single_args: VllmArgs) -> None:
    answers = servers.refusals(single_args, ranks=[2, RANKS])
    spec = from_hf_config(json.loads((Path(single_args.model) / "config.json").read_text()))
    assert "attention heads (9) must be divisible by tensor parallel size (2)" in answers["2"]
    assert answers[str(RANKS)] == ""
    require_split(spec, ranks=RANKS)
    with pytest.raises(UsageError, match="9 query heads cannot be split over 2 ranks"):
        require_split(spec, ranks=2)


def test_only_the_ranks_differ(pair: Pair) -> None:
    assert pair[RANKS].args.replace(tensor_parallel_size=1) == pair[1].args
    assert servers.workers_seen(pair[RANKS]) == list(range(RANKS))
    assert servers.workers_seen(pair[1]) == []


def test_the_text_is_the_same(pair: Pair) -> None:
    asked = prompt_ids(pair[1].args.model, tokens=20)
    texts = {n: servers.greedy_texts(one, asked, max_tokens=REPLY) for n, one in pair.items()}
    assert texts[RANKS] == texts[1]
    assert len(set(texts[1])) == len(PROMPTS), "three prompts, three replies"


def test_a_ranks_pool_holds_more_tokens_as_foretold(pair: Pair, spec: ModelSpec) -> None:
    told = {n: servers.facts(one) for n, one in pair.items()}
    for n, one in pair.items():
        ours = pool(spec, one.args)
        assert (told[n]["tokens"], told[n]["blocks"]) == (ours.tokens, ours.blocks)
    assert told[RANKS]["tokens"] == RANKS * told[1]["tokens"]
    whole, share = (kv_bytes_per_token(spec, tensor_parallel=n) for n in (1, RANKS))
    assert whole == RANKS * share
