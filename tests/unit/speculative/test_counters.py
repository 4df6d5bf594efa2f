"""The engine's counters of guesses, read from a page as vLLM publishes it."""

from __future__ import annotations

import pytest

from turbo_lab.core.errors import UnmeasuredError
from turbo_lab.speculative.counters import GuessCounts, read_counts

PAGE = {
    'vllm:iteration_tokens_total_count{engine="0"}': 12.0,
    'vllm:generation_tokens_total{engine="0"}': 31.0,
    'vllm:spec_decode_num_drafts_total{engine="0"}': 8.0,
    'vllm:spec_decode_num_draft_tokens_total{engine="0"}': 24.0,
    'vllm:spec_decode_num_accepted_tokens_total{engine="0"}': 10.0,
    'vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="2"}': 1.0,
    'vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="0"}': 6.0,
    'vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="1"}': 3.0,
    'vllm:spec_decode_num_accepted_tokens_created{engine="0"}': 1.7e9,
}


class Server:
    def __init__(self, page: dict[str, float]) -> None:
        self.page = page

    def metrics(self) -> dict[str, float]:
        return self.page


def test_reading_sorts_positions_by_number() -> None:
    found = read_counts(Server(PAGE))
    assert found == GuessCounts(12, 31, 8, 24, 10, (6, 3, 1))
    assert found.rates() == (0.75, 0.375, 0.125)
    assert found.tokens_per_draft() == 2.25
    assert found.decode_steps(requests=2) == 10
    assert found.proposal_share(requests=2) == 0.8
    assert GuessCounts.from_dict(found.to_dict()) == found


def test_growth_belongs_to_what_ran_in_between() -> None:
    before, after = GuessCounts(5, 9, 3, 9, 4, (2, 1, 1)), read_counts(Server(PAGE))
    assert after.since(before) == GuessCounts(7, 22, 5, 15, 6, (4, 2, 0))


def test_a_server_without_speculation_has_no_guesses() -> None:
    plain = read_counts(Server({k: v for k, v in PAGE.items() if "spec" not in k}))
    assert plain == GuessCounts(12, 31)
    assert plain.proposal_share(requests=2) == 0.0
    for ask in (plain.rates, plain.tokens_per_draft):
        with pytest.raises(UnmeasuredError, match="no guess"):
            ask()


def test_what_is_not_published_is_not_invented() -> None:
    with pytest.raises(UnmeasuredError, match="iteration_tokens"):
        read_counts(Server({}))
    with pytest.raises(UnmeasuredError, match="steps for 5 requests"):
        GuessCounts(3, 9).decode_steps(requests=5)
