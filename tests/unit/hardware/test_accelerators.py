"""Data sheets: complete, sourced, and found by the names that drivers print."""

from __future__ import annotations

import json

import pytest

from turbo_lab.core.errors import ConfigError, UsageError
from turbo_lab.core.host import repository_root
from turbo_lab.hardware.accelerators import accelerator, accelerators, match_device

FOLDER = repository_root() / "data" / "hardware"


def test_about_twenty_chips_each_with_a_source_and_a_date_per_figure() -> None:
    sheets = accelerators()
    assert len(sheets) >= 20
    for sheet in sheets:
        for key, figure in sheet.figures.items():
            if figure.value is None:
                assert figure.source is None and figure.date is None, (sheet.slug, key)
            else:
                assert figure.source and len(figure.date or "") == 7, (sheet.slug, key)


def test_every_chip_has_the_two_ceilings_of_a_roofline() -> None:
    for sheet in accelerators():
        roof = sheet.roof("bf16" if "bf16" in sheet.dtypes else "fp16")
        assert 20 < roof.ridge < 1000, sheet.slug


def test_rates_are_dense_not_sparse() -> None:
    """The classic trap: 1,979 is the H100's sparse bf16 rate (and its dense fp8 rate)."""
    h100 = accelerator("h100-sxm5-80gb")
    assert h100.peak_flops("bf16") == pytest.approx(989.4e12)
    assert h100.peak_flops("fp8") == pytest.approx(2 * h100.peak_flops("bf16"), rel=1e-3)
    for sheet in accelerators():
        if {"bf16", "fp8"} <= set(sheet.dtypes) and sheet.slug not in ("gaudi2", "gaudi3"):
            assert sheet.peak_flops("fp8") == pytest.approx(2 * sheet.peak_flops("bf16"), rel=0.02)


def test_an_unknown_format_is_not_a_zero() -> None:
    v100 = accelerator("v100-sxm2-32gb")
    assert v100.figures["peak_bf16_flops"].value is None
    with pytest.raises(UsageError, match="no printed rate for 'bf16'.*fp16"):
        v100.peak_flops("bf16")


@pytest.mark.parametrize(
    ("device", "slug"),
    [
        ("NVIDIA H200", "h200-sxm5-141gb"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm5-80gb"),
        ("NVIDIA H100 PCIe", "h100-pcie-80gb"),
        ("NVIDIA L4", "l4"),
        ("NVIDIA L40S", "l40s"),
        ("Tesla V100-SXM2-32GB", "v100-sxm2-32gb"),
        ("NVIDIA A100-SXM4-80GB", "a100-sxm4-80gb"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("NVIDIA A10", "a10"),
    ],
)
def test_driver_names_find_their_sheet(device: str, slug: str) -> None:
    found = match_device(device)
    assert found is not None and found.slug == slug


@pytest.mark.parametrize(
    "device",
    [
        "AMD EPYC",
        "NVIDIA A10G",
        "NVIDIA L400",
        "NVIDIA H200 NVL",
        "NVIDIA H800 PCIe",
        "NVIDIA GeForce RTX 4090 D",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "",
    ],
)
def test_other_names_find_nothing(device: str) -> None:
    assert match_device(device) is None


def test_a_misspelt_chip_names_the_nearest() -> None:
    with pytest.raises(UsageError, match="h200-sxm5-141gb"):
        accelerator("h200-sxm-141gb")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: f.pop("power_w"), "power_w"),
        (lambda f: f["bandwidth_bytes_s"].update(source=None), "no source"),
        (lambda f: f["bandwidth_bytes_s"].update(date=None), "no date"),
        (lambda f: f["bandwidth_bytes_s"].update(value=-1), "no sense"),
        (lambda f: f["bandwidth_bytes_s"].pop("note"), "exactly the fields"),
        (lambda f: f["bandwidth_bytes_s"].update(basis="guessed"), "guessed"),
    ],
)
def test_a_figure_without_its_source_is_refused(tmp_path, change, message) -> None:
    raw = json.loads((FOLDER / "l4.json").read_text())
    change(raw["figures"])
    (tmp_path / "l4.json").write_text(json.dumps(raw))
    with pytest.raises(ConfigError, match=message):
        accelerators(tmp_path)
