"""The retrieval-and-tool chain, against a scripted server: every stage real but the model."""

from __future__ import annotations

import pytest

from turbo_lab.core.errors import TurboLabError, UnmeasuredError, UsageError
from turbo_lab.engines.mock_script import Reply, Script, Speech
from turbo_lab.engines.mock_server import MockServer
from turbo_lab.estimate import amdahl
from turbo_lab.experiment import chain, chain_parts
from turbo_lab.experiment.chain import Link, chain_corpus, chain_questions, run_chain
from turbo_lab.experiment.chain_tools import calculate, estimate, run_tool
from turbo_lab.experiment.quality_checks import mentions_any

QUESTIONS = chain_questions()


def script(gap_s: float = 0.002) -> Script:
    return Script(replies=(Reply(speech=Speech(ttft_s=0.02, gap_s=gap_s)),))


def test_every_fifth_question_needs_a_tool_and_both_tools_are_among_the_first_ten():
    assert [bool(q.tool) for q in QUESTIONS] == ([False] * 4 + [True]) * 6
    assert {q.tool[0] for q in QUESTIONS[:10] if q.tool} == {"calculate", "estimate"}
    assert len({q.id for q in QUESTIONS}) == len({q.question for q in QUESTIONS}) == 30
    with pytest.raises(UsageError, match="31 questions; there are 30"):
        chain_questions(31)


@pytest.mark.parametrize("question", [q for q in QUESTIONS if not q.tool], ids=lambda q: q.id)
def test_the_text_that_is_found_holds_the_answer(question):
    corpus = chain_corpus()
    found = corpus.texts[corpus.search(question.question)[0]]
    assert any(a.lower() in found.lower() for a in question.answers)


@pytest.mark.parametrize("question", [q for q in QUESTIONS if q.tool], ids=lambda q: q.id)
def test_the_tool_gives_the_answer(question):
    assert mentions_any(run_tool(question.tool), question.answers)


@pytest.mark.parametrize("bad", ["__import__('os')", "2 ** 99", "'a' * 9", "open('x')", "True + 1"])
def test_the_calculator_knows_numbers_and_four_operations(bad):
    assert calculate("2 * (3 + 4) / 7 - 1") == "1.0"
    with pytest.raises(TurboLabError, match="the tool failed"):
        calculate(bad)


def test_an_unknown_tool_and_an_unknown_number_are_named():
    with pytest.raises(UsageError, match="there is no tool 'shell'"):
        run_tool(("shell", "ls"))
    with pytest.raises(UsageError, match="estimate has no 'kv_bytes'"):
        estimate("qwen3-8b", "kv_bytes")


def test_the_stages_add_up_to_the_whole():
    with MockServer(script()) as mock:
        rows = run_chain(QUESTIONS[:5], base_url=mock.base_url, model="mock", reply_tokens=4)
    links = [Link.from_dict(row) for row in rows]
    stages = chain.stage_seconds(links)
    assert sum(stages.values()) == pytest.approx(sum(x.whole_s for x in links))
    assert [x.tool for x in links] == ["", "", "", "", "calculate"]
    assert stages["tool"] > 0 and all(x.tool_s == 0 for x in links[:4])
    assert all(x.ttft_s >= 0.02 and x.reply_tokens == 4 for x in links)
    assert chain.inference_share(links) == pytest.approx(
        (stages["first token"] + stages["further tokens"]) / sum(stages.values())
    )


def test_a_failed_request_leaves_no_answer():
    with (
        MockServer(Script(replies=(Reply(status=500),))) as mock,
        pytest.raises(UnmeasuredError, match="chain-01"),
    ):
        run_chain(QUESTIONS[:1], base_url=mock.base_url, model="mock", reply_tokens=4)


def test_what_is_foretold_is_the_sum_of_the_parts():
    parts = {"retrieval": 0.001, "tools": {"calculate": 0.02, "estimate": 0.2},
             "first_token": 0.1, "token": 0.01}  # fmt: skip
    stages = chain_parts.foretold_stages(parts, QUESTIONS[:10], reply_tokens=11)
    assert stages == pytest.approx(
        {"retrieval": 0.01, "tool": 0.22, "first token": 1.0, "further tokens": 1.0}
    )
    share = chain_parts.foretold_share(stages)
    gain = chain_parts.inference_gain(parts, reply_tokens=11, shorter=1)
    assert gain == pytest.approx(2.0)
    after = chain_parts.foretold_stages(parts, QUESTIONS[:10], reply_tokens=1)
    whole = sum(stages.values()) / sum(after.values())
    assert amdahl.speedup(share, faster=gain) == pytest.approx(whole)


def test_parts_are_measured_alone():
    with MockServer(script(gap_s=0.1)) as mock:  # so long that no busy machine bunches a reply
        found = chain_parts.measure_parts(
            QUESTIONS[:3], base_url=mock.base_url, model="mock", reply_tokens=4
        )
    assert found["first_token"] >= 0.02 and found["token"] > 0
    assert set(found["tools"]) == {"calculate", "estimate"} and min(found["tools"].values()) > 0


def link(decode_s: float, reply_tokens: int) -> Link:
    return Link(
        id="x", tool="", retrieve_s=0.0, tool_s=0.0, ttft_s=0.1, decode_s=decode_s,
        whole_s=0.1 + decode_s, prompt_tokens=9, reply_tokens=reply_tokens, reply="", right=False,
    )  # fmt: skip


def test_the_pace_is_the_median_and_is_not_made_up_where_it_was_not_seen():
    assert chain.token_s([link(0.4, 5), link(0.8, 5), link(0.0, 5), link(9.0, 1)]) == 0.1
    for links, why in (([], "second token"), ([link(1.0, 1)], "second token"),
                       ([link(0.0, 5), link(0.0, 5), link(0.4, 5)], "in one piece")):  # fmt: skip
        with pytest.raises(UnmeasuredError, match=why):
            chain.token_s(links)
    with pytest.raises(UnmeasuredError, match="no question"):
        chain.inference_share([])
