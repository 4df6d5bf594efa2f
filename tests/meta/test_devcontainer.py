"""The devcontainer file: fields of the published schema, and files that exist here.

Schema: https://github.com/devcontainers/spec, schemas/devContainer.base.schema.json.
"""

from __future__ import annotations

import json
from pathlib import Path

from jsonschema import validate

ROOT = Path(__file__).resolve().parents[2]
TEXT = {"type": "string"}
SCHEMA = {
    "type": "object",
    "required": ["image"],
    "additionalProperties": False,
    "properties": {
        "name": TEXT,
        "image": TEXT,
        "postCreateCommand": TEXT,
        "containerEnv": {"type": "object", "additionalProperties": TEXT},
        "forwardPorts": {
            "type": "array",
            "items": {"type": "integer", "minimum": 0, "maximum": 65535},
        },
        "portsAttributes": {
            "type": "object",
            "patternProperties": {
                r"^\d+$": {
                    "type": "object",
                    "additionalProperties": False,
                    "properties": {
                        "label": TEXT,
                        "onAutoForward": {
                            "enum": ["notify", "openBrowser", "openBrowserOnce", "openPreview",
                                     "silent", "ignore"]
                        },
                    },
                }
            },
        },
        "hostRequirements": {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "cpus": {"type": "integer", "minimum": 1},
                "memory": {"type": "string", "pattern": r"^\d+([tgmk]b)?$"},
                "storage": {"type": "string", "pattern": r"^\d+([tgmk]b)?$"},
            },
        },
        "customizations": {"type": "object"},
    },
}  # fmt: skip


def test_it_follows_the_published_schema_and_names_what_is_here() -> None:
    content = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text())
    validate(content, SCHEMA)
    script = content["postCreateCommand"].split()[1]
    assert (ROOT / script).is_file()
    assert 8888 in content["forwardPorts"]


def test_it_leaves_the_mode_to_what_is_installed() -> None:
    """A fixed TURBO_LAB_MODE=replay would go before `make course`, which installs the engine."""
    content = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text())
    assert "TURBO_LAB_MODE" not in json.dumps(content)


def test_its_python_is_the_projects() -> None:
    image = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text())["image"]
    assert image.endswith(":" + (ROOT / ".binder" / "runtime.txt").read_text().strip()[7:])
