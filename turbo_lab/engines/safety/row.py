"""One row of the checklist, and the table of all rows with their words."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from turbo_lab.records.redact import redact

Status = Literal["ok", "warn", "fail", "unknown"]

# id: (why it matters, what to do). The order is the one in which the rows are shown.
CHECKS: dict[str, tuple[str, str]] = {
    "loopback_only": (
        "A server that listens on all addresses can be used by whoever reaches the machine.",
        "Keep --host 127.0.0.1 and put a reverse proxy before it: turbo-lab serve --nginx PORT.",
    ),
    "encrypted": (
        "Without TLS, prompts, replies and the key can be read on the way.",
        "Let the reverse proxy speak TLS, or give --ssl-certfile and --ssl-keyfile.",
    ),
    "api_key": (
        "Without a key, everybody who reaches the port may use the model.",
        "Set VLLM_API_KEY to at least 32 random letters (openssl rand -hex 32).",
    ),
    "key_hidden": (
        "A key on the command line is shown by ps to every user of the machine.",
        "Give the key in the environment (VLLM_API_KEY), not as --api-key.",
    ),
    "unguarded_paths": (
        "vLLM asks for the key under some paths only; /metrics, /tokenize, /invocations and "
        "others answer without it.",
        "Let the reverse proxy pass a list of paths alone: turbo-lab serve --nginx PORT.",
    ),
    "developer_endpoints": (
        "Development mode adds paths without a key that change weights, run calls in the workers "
        "or put the engine to sleep.",
        "Unset VLLM_SERVER_DEV_MODE: turbo-lab serve --env VLLM_SERVER_DEV_MODE=0.",
    ),
    "rate_limit": (
        "vLLM queues without a limit, so that one client can take all of the capacity.",
        "Put nginx with limit_req before it: turbo-lab serve --nginx PORT.",
    ),
    "not_root": (
        "A fault in a server that runs as root is a fault of the whole machine.",
        "Run the server as a user of its own (User= in systemd, USER in a Dockerfile).",
    ),
    "weights_read_only": (
        "Whoever can write the weights can change what the model says.",
        "Give the files to another user and take the write rights away: chmod -R a-w FOLDER.",
    ),
    "prompts_not_logged": (
        "Prompts and replies are private; a log is copied, kept and sent around.",
        "Leave --enable-log-requests and --enable-log-outputs off, and the log level at INFO.",
    ),
    "log_private": (
        "Other users of the machine should not read the server's log.",
        "chmod 600 LOG, or keep it in a folder of mode 700.",
    ),
    "log_clean": (
        "A key or a prompt in a log stays there after both were forgotten.",
        "Replace the key, delete or clean the log, then switch off what wrote it.",
    ),
    "records_redacted": (
        "Records hold the command and the environment of a server, and records are published.",
        "Give keys by environment variables with names such as VLLM_API_KEY.",
    ),
    "model_source": (
        "Weights of unknown origin cannot be checked, repeated or recalled.",
        "Pin a commit (--revision SHA), or keep name, commit and checksums beside the files.",
    ),
    "model_checksum": (
        "A damaged or exchanged file is found by its checksum alone.",
        "sha256sum *.safetensors > SHA256SUMS at the source; compare with --manifest SHA256SUMS.",
    ),
    "safetensors_only": (
        "Pickle files (.bin, .pt, .ckpt) can run any program when they are loaded.",
        "Use safetensors files, remove the others, and set --load-format safetensors.",
    ),
    "no_remote_code": (
        "Code that comes with a model, and plug-ins, run with all rights of the server.",
        "Leave --trust-remote-code off; take a model that the engine itself supports.",
    ),
    "risky_flags": (
        "Some settings give requests more rights than they need.",
        "Leave them out where clients are not trusted.",
    ),
}


@dataclass(frozen=True)
class Check:
    """One row. ``evidence`` is what was seen, without secrets; ``fix`` is the next step."""

    id: str
    status: Status
    why: str
    evidence: str
    fix: str

    def to_dict(self) -> dict[str, Any]:
        """The form that ``turbo-lab serve --checklist --json`` prints."""
        return asdict(self)


def row(check_id: str, status: Status, evidence: str) -> Check:
    """The row of that id, with the table's words."""
    why, fix = CHECKS[check_id]
    return Check(id=check_id, status=status, why=why, evidence=redact(evidence), fix=fix)


def by_exposure(exposed: bool) -> Status:
    """A gap that the network can reach is a failure; one that only this machine can, a warning."""
    return "fail" if exposed else "warn"
