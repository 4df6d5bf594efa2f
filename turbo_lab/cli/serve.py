"""``turbo-lab serve``: the course's server in the foreground, with the checks the lessons use."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from turbo_lab.engines.vllm_server import VllmServer

EXAMPLES = """
Serve the bundled model with the settings this machine measured as fastest, until Ctrl-C.

Examples:

  turbo-lab serve

  turbo-lab serve --dtype float32 --kv-cache-gib 2 --max-model-len 4096

  turbo-lab serve ./my-model --port 8000 --flag --enable-prefix-caching

  turbo-lab serve --flags | grep kv-cache
"""


def serve(
    model: Annotated[
        str | None, typer.Argument(help="Folder or Hugging Face id (default: the bundled model).")
    ] = None,
    port: Annotated[
        int | None, typer.Option(help="Port on loopback (default: a free one).")
    ] = None,
    dtype: Annotated[str | None, typer.Option(help="float32, bfloat16, float16 or auto.")] = None,
    kv_cache_gib: Annotated[float | None, typer.Option(help="Size of the KV pool in GiB.")] = None,
    max_model_len: Annotated[int, typer.Option(help="Longest sequence in tokens.")] = 2048,
    max_num_seqs: Annotated[int, typer.Option(help="Most sequences in one step.")] = 16,
    mode: Annotated[str, typer.Option(help="auto, cpu or gpu.")] = "auto",
    flag: Annotated[
        list[str] | None,
        typer.Option(help="Any further flag of vllm serve, as --name or --name=value; repeatable."),
    ] = None,
    flags: Annotated[
        bool, typer.Option("--flags", help="List every flag of the installed vllm serve and exit.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object when ready.")
    ] = False,
) -> None:
    """Start a real ``vllm serve`` and keep it until Ctrl-C."""
    from turbo_lab.core.config import resolve_dials
    from turbo_lab.engines import vllm_cli
    from turbo_lab.engines.defaults import default_args
    from turbo_lab.engines.vllm_server import VllmServer

    if flags:
        known = vllm_cli.known_flags()
        print(json.dumps(known) if as_json else "\n".join(sorted(known)))
        return
    say = (lambda _: None) if as_json else print
    given = {"dtype": dtype, "kv_cache_gib": kv_cache_gib}
    args = default_args(
        resolve_dials(mode), model=model, report=say,
        max_model_len=max_model_len, max_num_seqs=max_num_seqs,
        extra=tuple(_pair(f) for f in flag or []),
        **{name: value for name, value in given.items() if value is not None},
    )  # fmt: skip
    say("Starting vllm serve (30-45 s on CPU) ...")
    with VllmServer(args, port=port) as server:
        _announce(server, as_json=as_json)
        _wait(server)


def _announce(server: VllmServer, *, as_json: bool) -> None:
    facts = {
        "base_url": server.base_url,
        "model": server.model_name,
        "load_s": server.load_s,
        "kv_cache_tokens": server.kv_cache_tokens(),
        "log": str(server.log),
    }
    text = (
        f"Ready after {server.load_s:.1f} s: {server.base_url}/v1  (model name: "
        f"{server.model_name}; KV pool: {facts['kv_cache_tokens']:,} tokens)\n"
        f"Log: {server.log}\nStop with Ctrl-C."
    )
    print(json.dumps(facts) if as_json else text, flush=True)


def _pair(flag: str) -> tuple[str, str]:
    name, _, value = flag.partition("=")
    return name, value


def _wait(server: VllmServer) -> None:
    from turbo_lab.core.errors import EngineError

    try:
        while server.alive():
            time.sleep(0.5)
    except KeyboardInterrupt:
        print("Stopping the server ...", flush=True)
        return
    raise EngineError(f"the server ended.\n{server.process.explain()}")


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command(help=EXAMPLES)(serve)
