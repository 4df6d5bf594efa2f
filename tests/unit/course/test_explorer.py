from __future__ import annotations

import pytest

from turbo_lab.core.errors import UsageError
from turbo_lab.course import explorer
from turbo_lab.course.explorer import Choice, build_controls, draw, explore, plan_row


def test_a_row_closes_the_budget():
    row = plan_row(Choice(card_gib=80, work_gib=4.0, context_tokens=8192))
    share, weights, work, cache = (
        float(row[name])
        for name in ("card x share [GiB]", "weights [GiB]", "work space [GiB]",
                     "left for the cache [GiB]")
    )  # fmt: skip
    assert cache == pytest.approx(share - weights - work, abs=0.011)
    assert row["one conversation [GiB]"] == "1.00" and row["conversations"] == "54 to 54"


def test_a_label_says_model_card_and_format():
    assert Choice(kv_dtype="fp8").label == "llama-3.1-8b, 24 GiB card, fp8 cache"


def test_every_offered_model_and_format_can_be_planned():
    for model in explorer.MODELS:
        for kind in explorer.KV_DTYPES:
            assert Choice(model=model, kv_dtype=kind, card_gib=192).plan().users[1] >= 0


def test_the_picture_marks_the_chosen_length():
    pytest.importorskip("matplotlib").use("Agg")
    ax = draw([Choice(context_tokens=2048), Choice(context_tokens=2048, kv_dtype="fp8")])
    assert any(list(line.get_xdata()) == [2048, 2048] for line in ax.lines)
    with pytest.raises(UsageError, match="at least one"):
        draw([])


def test_without_a_person_there_is_no_widget(capsys, monkeypatch):
    monkeypatch.setenv("JPY_SESSION_NAME", "a.ipynb")  # not even so: this is no notebook kernel
    explore()
    assert "make lab" in capsys.readouterr().out


class Shell:
    kernel = object()

    def __init__(self, **names):
        self.user_ns = names


@pytest.mark.parametrize(
    ("environment", "names", "there"),
    [
        ({"JPY_SESSION_NAME": "a.ipynb"}, {}, True),
        ({}, {"__vsc_ipynb_file__": "a.ipynb"}, True),
        ({}, {}, False),
        ({"JPY_SESSION_NAME": "a.ipynb", "TURBO_LAB_RUN_DIR": "runs/x"}, {}, False),
    ],
)
def test_who_counts_as_a_person(monkeypatch, environment, names, there):
    for name in ("JPY_SESSION_NAME", "TURBO_LAB_RUN_DIR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    ipython = type("IPython", (), {"get_ipython": staticmethod(lambda: Shell(**names))})
    monkeypatch.setitem(explorer.sys.modules, "IPython", ipython)
    assert explorer.someone_is_there() is there


def test_the_controls_start_at_the_choice_and_recompute(capsys):
    pytest.importorskip("ipywidgets")
    pytest.importorskip("matplotlib").use("Agg")
    controls = build_controls(Choice(model="qwen2.5-7b", card_gib=48, context_tokens=8192))
    assert set(controls) == set(Choice.__dataclass_fields__)
    values = {name: control.value for name, control in controls.items()}
    choice = explorer._choice(values)
    assert choice == Choice(model="qwen2.5-7b", card_gib=48, context_tokens=8192)
    explorer._show(explorer._choice({**values, "card_gib": 8.0}))
    assert "The weights do not fit" in capsys.readouterr().out
    explorer._show(choice)
    assert "conversations" in capsys.readouterr().out
