from __future__ import annotations

import pytest

from turbo_lab.core.errors import UnmeasuredError, UsageError


def fail(reason):
    raise UnmeasuredError(reason)


def test_verdicts_and_text(live):
    live.predict("pool_tokens", 23296, unit="tokens", tolerance=0.0)
    live.predict("ttft_s", 0.5, unit="s", band=(0.1, 0.6))
    live.predict("tpot_s", 0.05, unit="s", tolerance=0.1)
    live.predict("later", 1, unit="s", tolerance=0.1)
    live.measure("pool_tokens", lambda: 23296, unit="tokens")
    live.measure("ttft_s", lambda: [0.7, 0.8], unit="s")
    live.measure("tpot_s", lambda: fail("no engine"), unit="s")
    table = live.compare()
    assert [row.verdict for row in table.rows] == ["met", "not met", "unmeasured", "unmeasured"]
    assert repr(table).splitlines() == [
        "name         unit    predicted  measured    published  measured / predicted  "
        "allowed      verdict     n",
        "pool_tokens  tokens  23,296     23,296                 1.000                 "
        "exact        met         1",
        "ttft_s       s       0.5        0.75                   1.500                 "
        "0.1 to 0.6   not met     2",
        "tpot_s       s       0.05       unmeasured                                   "
        "within 10 %  unmeasured  0",
        "later        s       1          unmeasured                                   "
        "within 10 %  unmeasured  0",
        "1 of 4 predictions met. Measured numbers: measured now.",
        "tpot_s is unmeasured: no engine",
        "later is unmeasured: not asked for yet",
    ]
    assert table._repr_html_().count("<tr>") == 5
    assert table._repr_markdown_().startswith("| name | unit |")
    assert list(table.frame().columns)[:2] == ["unit", "predicted"]
    assert [row.name for row in live.compare("ttft_s").rows] == ["ttft_s"]


def test_html_is_escaped(live):
    live.predict("x", 1, unit="<b>", tolerance=0.1)
    assert "&lt;b&gt;" in live.compare()._repr_html_()


def test_comparing_an_unknown_name_offers_the_near_one(live):
    live.predict("pool_tokens", 1, unit="s", tolerance=0.1)
    with pytest.raises(UsageError, match="Did you mean 'pool_tokens'"):
        live.compare("pool_token")


def test_failed_gates_are_shown(live):
    live.predict("x", 1, unit="s", tolerance=0.1)
    live.gate("no failed request", False, detail="2 of 10 failed")
    live.gate("warm", True)
    assert "validity gate failed: no failed request (2 of 10 failed)" in repr(live.compare())
    assert "warm" not in repr(live.compare())


def test_prose_takes_its_numbers_from_the_measurements(live):
    live.predict("ttft_s", 0.5, unit="s", tolerance=0.1)
    live.measure("ttft_s", lambda: 0.51234, unit="s")
    live.observe("lines", lambda: ["first", "second"])
    text = live.text(
        "After {ttft_s:.2f} s, not {predicted[ttft_s]} s: {lines[1]}, {rate:.1f}/s.",
        rate=lambda: 1 / live.number("ttft_s"),
    )
    assert text._repr_markdown_() == "After 0.51 s, not 0.5 s: second, 2.0/s."


def test_prose_never_invents(live):
    live.predict("ttft_s", 0.5, unit="s", tolerance=0.1)
    live.measure("ttft_s", lambda: fail("no engine"), unit="s")
    assert repr(live.text("{ttft_s:.2f} s")) == "unmeasured (no engine) s"
    rate = live.text("{rate:.1f}/s", rate=lambda: 1 / live.number("ttft_s"))
    assert repr(rate) == "unmeasured (ttft_s is unmeasured: no engine)/s"
    verdict = live.text("It held.", if_met="ttft_s", otherwise="It did not hold.")
    assert repr(verdict) == "ttft_s is unmeasured: no engine"


def test_prose_follows_the_verdict(live):
    live.predict("x", 1, unit="s", tolerance=0.0)
    live.measure("x", lambda: 2, unit="s")
    assert repr(live.text("It held.", if_met="x", otherwise="Off by {x}.")) == "Off by 2."


@pytest.mark.parametrize("template", ["{ttft}", "{}", "{x[key]}", "{x:q}", "{x.nothing}"])
def test_prose_refuses_what_it_cannot_fill(live, template):
    live.predict("x", 1, unit="s", tolerance=0.1)
    live.measure("x", lambda: 1, unit="s")
    with pytest.raises(UsageError, match=r"lab\.text"):
        live.text(template)
