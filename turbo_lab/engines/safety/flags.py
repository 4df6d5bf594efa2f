"""Rows that follow from how the server is started: flags and environment, nothing is run."""

from __future__ import annotations

import json

from turbo_lab.engines.safety.plan import Plan
from turbo_lab.engines.safety.row import Check, by_exposure, row
from turbo_lab.engines.safety.source import guarded_prefixes
from turbo_lab.records.redact import redact

SHORTEST_KEY = 16
SAMPLE = "sample-of-a-key-0123456789"
PLUGINS = ("tool-parser-plugin", "reasoning-parser-plugin", "io-processor-plugin",
           "logits-processors", "middleware")  # fmt: skip
RISKY_FLAGS = {
    "allowed-local-media-path": "requests may read files of that folder",
    "trust-request-chat-template": "requests may bring templates, and a template is a program",
    "trust-request-mm-kwargs": "requests may change how much an image costs",
    "enable-tokenizer-info-endpoint": "/tokenizer_info shows the chat template without a key",
    "profiler-config": "/start_profile and /stop_profile need no key",
    "tool-server": "a demo tool server runs code that the model writes",
    "nnodes": "traffic between the hosts is neither encrypted nor authenticated",
    "kv-transfer-config": "KV blocks travel neither encrypted nor authenticated",
}
RISKY_VARIABLES = {
    "VLLM_ALLOW_INSECURE_SERIALIZATION": "pickles from other processes are loaded",
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "requests may load adapters from any path",
}


def flag_rows(plan: Plan) -> list[Check]:
    """All rows that a plan decides."""
    return [
        _loopback(plan), _encrypted(plan), _key(plan), _key_hidden(plan), _unguarded(plan),
        _developer(plan), _prompts(plan), _records(), _risky(plan),
    ]  # fmt: skip


def _loopback(plan: Plan) -> Check:
    if not plan.exposed:
        return row("loopback_only", "ok", f"listens on {plan.host}")
    where = f"--host {plan.host}" if plan.host else "no --host, so vLLM listens on all addresses"
    return row("loopback_only", "fail", where)


def _encrypted(plan: Plan) -> Check:
    if plan.flags.get("ssl-certfile"):
        return row("encrypted", "ok", "--ssl-certfile is given")
    if plan.exposed:
        return row("encrypted", "fail", "plain HTTP on an address that others reach")
    return row("encrypted", "ok", "plain HTTP, on loopback only; TLS is the proxy's part")


def _key(plan: Plan) -> Check:
    if plan.key is None:
        empty = "an empty key, which vLLM takes as none" if _named(plan) else "no key is set"
        return row("api_key", by_exposure(plan.exposed), empty)
    if len(plan.key) < SHORTEST_KEY:
        return row("api_key", "warn", f"the key has {len(plan.key)} letters and can be guessed")
    return row("api_key", "ok", f"a key of {len(plan.key)} letters is asked for")


def _named(plan: Plan) -> bool:
    return "api-key" in plan.flags or "VLLM_API_KEY" in plan.env


def _key_hidden(plan: Plan) -> Check:
    if plan.flags.get("api-key"):
        return row("key_hidden", "fail", "the command line holds the flag --api-key")
    return row("key_hidden", "ok", "no key on the command line")


def _unguarded(plan: Plan) -> Check:
    prefixes, where = guarded_prefixes()
    text = f"the key is asked for under {', '.join(prefixes)} only ({where})"
    if plan.exposed:
        return row("unguarded_paths", "fail", f"{text}; the other paths are open to the network")
    return row("unguarded_paths", "ok", f"{text}; the other paths are reached on loopback only")


def _developer(plan: Plan) -> Check:
    if plan.switched_on("VLLM_SERVER_DEV_MODE"):
        return row("developer_endpoints", by_exposure(plan.exposed), "VLLM_SERVER_DEV_MODE=1")
    return row("developer_endpoints", "ok", "VLLM_SERVER_DEV_MODE is off")


def _prompts(plan: Plan) -> Check:
    level = plan.flags.get("log-level") or plan.env.get("VLLM_LOGGING_LEVEL") or "INFO"
    requests = "enable-log-requests" in plan.flags
    told = []
    if "enable-log-outputs" in plan.flags:
        told.append("--enable-log-outputs writes replies")
    if requests and level.upper() == "DEBUG":
        told.append("--enable-log-requests at level DEBUG writes prompts")
    if plan.switched_on("VLLM_DEBUG_LOG_API_SERVER_RESPONSE"):
        told.append("VLLM_DEBUG_LOG_API_SERVER_RESPONSE writes replies")
    if told:
        return row("prompts_not_logged", "fail", "; ".join(told))
    if requests or "logging-config" in plan.flags:
        what = "--enable-log-requests writes ids and sampling settings" if requests else (
            "--logging-config decides what is written"
        )  # fmt: skip
        return row("prompts_not_logged", "warn", f"{what}; no prompts at level {level.upper()}")
    return row("prompts_not_logged", "ok", f"requests are not logged; level {level.upper()}")


def _records() -> Check:
    """What a record would hold of a key given in each of the three ways: does it come through?"""
    kept = {"command": ["--api-key", SAMPLE, f"--api-key={SAMPLE}"],
            "environment": {"VLLM_API_KEY": SAMPLE, "HF_TOKEN": SAMPLE}}  # fmt: skip
    if SAMPLE in json.dumps(redact(kept)):
        return row("records_redacted", "fail", "a key would stand in a record")
    return row("records_redacted", "ok", "a sample key in command and environment was taken out")


def _risky(plan: Plan) -> Check:
    told = [f"--{name}: {why}" for name, why in RISKY_FLAGS.items() if name in plan.flags]
    told += [f"{n}: {why}" for n, why in RISKY_VARIABLES.items() if plan.switched_on(n)]
    if "*" in plan.flags.get("allowed-origins", ""):
        told.append("--allowed-origins *: pages of any site may use the server from a browser")
    if told:
        return row("risky_flags", "warn", "; ".join(told))
    return row("risky_flags", "ok", "none of them is set")
