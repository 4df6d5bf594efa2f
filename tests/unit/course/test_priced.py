"""The price of a step in a lesson: measured through the client, replayed, or told as missing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from turbo_lab.core.errors import UnmeasuredError
from turbo_lab.course import start_lesson
from turbo_lab.course.lesson import Lesson
from turbo_lab.course.priced import priced
from turbo_lab.course.served import Served
from turbo_lab.engines.mock_script import Reply, Script, Speech
from turbo_lab.engines.mock_server import MockServer
from turbo_lab.models.spec import from_hf_config
from turbo_lab.records import store

SPEC = from_hf_config(
    {
        "model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 128,
        "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 5000,
        "max_position_embeddings": 2048, "tie_word_embeddings": True, "torch_dtype": "float32",
    }
)  # fmt: skip
FACTS = Served(spec=SPEC, dtype="fp32", seats=3, block_tokens=16, longest_tokens=2048)
HOW = {"users": 2, "context_tokens": 40, "prompts_tokens": (16, 32, 64), "passes": 1}
GAP_S = 0.01


@pytest.fixture
def server() -> Iterator[SimpleNamespace]:
    speech = Speech(ttft_s=0.01, gap_s=GAP_S, tokens=3, role_chunk=False)
    with MockServer(Script(replies=(Reply(speech=speech),))) as mock:
        yield SimpleNamespace(base_url=mock.base_url, model_name="mock", mock=mock)


def test_steps_are_priced_and_replayed(
    lesson: Lesson, server: SimpleNamespace, tmp_path: Path
) -> None:
    found = priced(lesson, server, FACTS, **HOW)
    # The mock's pace does not depend on the batch; a busy machine can only make it slower.
    for batch in (1, 2, 3):
        step_s = found.model.decode_s(batch=batch, context_tokens=40)
        assert 0.5 * GAP_S < step_s < 20 * GAP_S
    lesson.compare()
    assert lesson.path is not None
    store.promote(lesson.path, study=lesson.study, folder=tmp_path / "records")
    again = start_lesson(lesson.notebook, mode="replay", records=tmp_path / "records")
    asked = len(server.mock.log)
    assert priced(again, None, FACTS, **HOW) == found
    assert len(server.mock.log) == asked


def test_without_a_server_nothing_is_priced(lesson: Lesson) -> None:
    gone = SimpleNamespace(base_url="http://127.0.0.1:9", model_name="none")
    with pytest.raises(UnmeasuredError, match="no step was measured"):
        priced(lesson, gone, FACTS, **HOW)
