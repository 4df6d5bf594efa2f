"""``turbo-lab serve``: the course's server in the foreground, or a check whether one is safe."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from turbo_lab.engines.args import VllmArgs
    from turbo_lab.engines.vllm_server import VllmServer

EXAMPLES = """
Serve the bundled model with the settings this machine measured as fastest, until Ctrl-C. It listens
on loopback only; VLLM_API_KEY in the environment sets a key.

With --checklist nothing is started: the plan, or the running server at --url, is checked for what
makes it unsafe to leave alone (address, key, open paths, rate limit, rights, logs, the model's
origin). Exit code: 0 nothing failed, 1 something did, 2 wrong use.

Examples:

  turbo-lab serve

  turbo-lab serve --dtype float32 --kv-cache-gib 2 --max-model-len 4096

  turbo-lab serve ./my-model --port 8000 --flag --enable-prefix-caching

  turbo-lab serve --flags | grep kv-cache

  turbo-lab serve --checklist --flag=--host=0.0.0.0

  turbo-lab serve --checklist --url http://127.0.0.1:8000 --burst 40

  turbo-lab serve --port 8000 --nginx 8080 > nginx.conf
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
    env: Annotated[
        list[str] | None,
        typer.Option(help="Environment variable of the server, as NAME=VALUE; repeatable."),
    ] = None,
    flags: Annotated[
        bool, typer.Option("--flags", help="List every flag of the installed vllm serve and exit.")
    ] = False,
    checklist: Annotated[
        bool, typer.Option("--checklist", help="Check the plan or --url for safety; start nothing.")
    ] = False,
    url: Annotated[
        str | None, typer.Option(help="For --checklist: a running server, http://HOST:PORT.")
    ] = None,
    log: Annotated[
        Path | None, typer.Option(help="For --checklist: the server's log, searched for secrets.")
    ] = None,
    proxy: Annotated[
        Path | None, typer.Option(help="For --checklist: the nginx.conf before the server.")
    ] = None,
    manifest: Annotated[
        Path | None, typer.Option(help="For --checklist: checksums of the weights (sha256sum).")
    ] = None,
    burst: Annotated[
        int, typer.Option(help="For --checklist --url: requests at once, to see a rate limit.")
    ] = 0,
    nginx: Annotated[
        int | None, typer.Option(help="Print an nginx.conf for this port, before --port, and exit.")
    ] = None,
    requests_per_minute: Annotated[
        int, typer.Option(help="For --nginx: rate of each client address.")
    ] = 120,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object when ready.")
    ] = False,
) -> None:
    """Start a real ``vllm serve`` and keep it until Ctrl-C."""
    from turbo_lab.cli.serve import safety

    given = {"dtype": dtype, "kv_cache_gib": kv_cache_gib}
    changes: dict[str, Any] = {
        "max_model_len": max_model_len,
        "max_num_seqs": max_num_seqs,
        "extra": tuple(_pair(f) for f in flag or []),
        "env": tuple(_variable(e) for e in env or []),
        **{name: value for name, value in given.items() if value is not None},
    }
    _check_belonging(checklist, url=url, log=log, proxy=proxy, manifest=manifest, burst=burst)
    if flags:
        _list_flags(as_json)
    elif nginx is not None:
        safety.print_nginx(nginx, upstream_port=port, requests_per_minute=requests_per_minute)
    elif checklist:
        plan = None if url and not (model or flag or env) else _plan(model, changes)
        safety.run_checklist(plan, url=url, log=log, proxy=proxy, manifest=manifest, burst=burst,
                             as_json=as_json)  # fmt: skip
    else:
        _run(model, changes, port=port, mode=mode, as_json=as_json)


def _check_belonging(checklist: bool, **given: Any) -> None:
    from turbo_lab.core.errors import UsageError

    names = [f"--{name}" for name, value in given.items() if value]
    if names and not checklist:
        raise UsageError(f"{', '.join(names)} belong{'s' * (len(names) == 1)} to --checklist")


def _list_flags(as_json: bool) -> None:
    from turbo_lab.engines import vllm_cli

    known = vllm_cli.known_flags()
    print(json.dumps(known) if as_json else "\n".join(sorted(known)))


def _plan(model: str | None, changes: dict[str, Any]) -> VllmArgs:
    """The arguments that would be used, without preparing a model or measuring this machine."""
    from turbo_lab.engines.args import VllmArgs
    from turbo_lab.engines.local_model import NAME, model_folder
    from turbo_lab.engines.vllm_server import check_model_folder

    if model is None or model == NAME:
        return VllmArgs.make(model=str(model_folder()), **changes)
    check_model_folder(model)
    return VllmArgs.make(model=model, **changes)


def _run(
    model: str | None, changes: dict[str, Any], *, port: int | None, mode: str, as_json: bool
) -> None:
    from turbo_lab.core.config import resolve_dials
    from turbo_lab.engines.defaults import default_args
    from turbo_lab.engines.vllm_server import VllmServer

    say = (lambda _: None) if as_json else print
    args = default_args(resolve_dials(mode), model=model, report=say, **changes)
    say("Starting vllm serve (30-45 s on CPU) ...")
    with VllmServer(args, port=port) as server:
        _announce(server, as_json=as_json)
        _wait(server)


def _announce(server: VllmServer, *, as_json: bool) -> None:
    tokens = _pool_tokens(server)
    facts = {
        "base_url": server.base_url,
        "model": server.model_name,
        "load_s": server.load_s,
        "kv_cache_tokens": tokens,
        "log": str(server.log),
    }
    text = (
        f"Ready after {server.load_s:.1f} s: {server.base_url}/v1  (model name: "
        f"{server.model_name}; KV pool: {'not told' if tokens is None else f'{tokens:,} tokens'})\n"
        f"Log: {server.log}\nStop with Ctrl-C."
    )
    print(json.dumps(facts) if as_json else text, flush=True)


def _pool_tokens(server: VllmServer) -> int | None:
    """Size of the KV pool; None where the log does not tell it. The server serves all the same."""
    from turbo_lab.core.errors import EngineError

    try:
        return server.kv_cache_tokens()
    except EngineError:
        return None


def _pair(flag: str) -> tuple[str, str]:
    name, _, value = flag.partition("=")
    return name, value


def _variable(text: str) -> tuple[str, str]:
    from turbo_lab.core.errors import UsageError

    name, found, value = text.partition("=")
    if not found or not name.isidentifier():
        raise UsageError(f"--env {name}; allowed: NAME=VALUE")
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
