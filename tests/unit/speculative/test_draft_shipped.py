"""The draft in the repository is the one that its recipe describes."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from typer.testing import CliRunner

from turbo_lab.core.errors import UsageError
from turbo_lab.engines import local_model
from turbo_lab.records.digest import file_sha256
from turbo_lab.speculative.__main__ import app
from turbo_lab.speculative.draft import DraftRecipe, PackedDraft, open_pack
from turbo_lab.speculative.draft_recipe import MAX_PACK_BYTES
from turbo_lab.speculative.prompts import CLASSES

HIDDEN, INTERMEDIATE, KV_WIDTH = 576, 1536, 192
LAYER_PARAMETERS = 2 * HIDDEN**2 + 2 * HIDDEN * KV_WIDTH + 3 * HIDDEN * INTERMEDIATE + 2 * HIDDEN


@pytest.fixture(scope="module")
def packed() -> PackedDraft:
    return open_pack()


def test_weights_are_those_of_the_recipe(packed: PackedDraft) -> None:
    facts = packed.recipe["weights"]
    assert file_sha256(packed.weights) == facts["sha256"]
    assert packed.weights.stat().st_size == facts["bytes"] <= MAX_PACK_BYTES
    with packed.weights.open("rb") as stream:
        header = json.loads(stream.read(int.from_bytes(stream.read(8), "little")))
    shapes = {n: t["shape"] for n, t in header.items() if n != "__metadata__"}
    sizes = [s[0] * (s[1] if len(s) > 1 else 1) for s in shapes.values()]
    assert sum(sizes) == facts["parameters"] == 3 * LAYER_PARAMETERS + HIDDEN
    assert not any("embed" in name or "head" in name for name in shapes)
    assert {t["dtype"] for n, t in header.items() if n != "__metadata__"} == {"BF16"}


def test_recipe_can_be_built_again(packed: PackedDraft) -> None:
    parts = packed.recipe["recipe"]
    recipe = DraftRecipe.make(**parts["data"], **parts["train"])
    assert recipe == DraftRecipe()  # the defaults of `build` make the shipped draft
    assert packed.recipe["teacher"]["gguf_sha256"] == local_model.GGUF_SHA256
    assert packed.recipe["license"] == "Apache-2.0"
    assert packed.recipe["made_with"]["packages"]["torch"]


def test_agreement_adds_up(packed: PackedDraft) -> None:
    found = dict(packed.recipe["agreement"])
    whole = found.pop("all")
    assert set(found) == set(CLASSES)
    assert whole["places"] == sum(f["places"] for f in found.values()) > 5000
    right = sum(f["share"] * f["places"] for f in found.values())
    assert whole["share"] == pytest.approx(right / whole["places"], abs=1e-3)
    assert all(f["low"] <= f["share"] <= f["high"] for f in (whole, *found.values()))
    assert packed.share > 0.4
    rates = packed.recipe["accepted_by_position"]
    assert all(a >= b for a, b in pairwise(rates)) and 0 < rates[0] < 1


def test_it_was_made_within_half_an_hour(packed: PackedDraft) -> None:
    assert 5 < sum(packed.recipe["minutes"].values()) < 30
    assert 3 * packed.recipe["data"]["held_out"] < sum(
        packed.recipe["data"]["conversations"].values()
    )


def test_show_prints_the_recipe(packed: PackedDraft) -> None:
    shown = CliRunner().invoke(app, ["show"])
    assert shown.exit_code == 0
    assert f"{packed.share:.1%}" in shown.output and "SmolLM2-135M" in shown.output
    plain = CliRunner().invoke(app, ["show", "--json"])
    assert json.loads(plain.output) == packed.recipe


def test_build_refuses_a_wrong_option_before_it_loads_anything() -> None:
    for option in ("rounds", "rounds=many"):
        result = CliRunner().invoke(app, ["build", "-r", option])
        assert isinstance(result.exception, UsageError) and "NAME=VALUE" in str(result.exception)
    result = CliRunner().invoke(app, ["build", "-r", "round=3"])
    assert isinstance(result.exception, UsageError) and "'rounds'" in str(result.exception)


def test_ctrl_c_says_how_to_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("turbo_lab.speculative.draft_build.build_draft", interrupted)
    result = CliRunner().invoke(app, ["build"])
    assert result.exit_code == 130 and "The same command goes on" in result.output
