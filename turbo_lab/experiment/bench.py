"""One benchmark run: facts, preflight, calibration, load with a sampler beside it, record."""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from turbo_lab.client.calibration import Calibration, calibrate
from turbo_lab.client.load import Item
from turbo_lab.client.sampler import INTERVAL_S, Sampler
from turbo_lab.client.stream import Target
from turbo_lab.core.errors import EngineError, RecordError, TurboLabError, UsageError
from turbo_lab.core.host import user_path
from turbo_lab.core.units import MiB, format_bytes
from turbo_lab.experiment import gates, run_folder, settings
from turbo_lab.experiment.bench_record import make_record
from turbo_lab.experiment.measure import Writer, send_all
from turbo_lab.experiment.plan import BenchPlan
from turbo_lab.experiment.preflight import Dialect, learn_dialect, load_tokenizer
from turbo_lab.experiment.progress import Progress, Silent
from turbo_lab.experiment.requests import build_requests, require_context
from turbo_lab.experiment.secrets import hide_key
from turbo_lab.experiment.server_facts import Server, describe_server, read_server
from turbo_lab.records import store
from turbo_lab.records.environment import utc_now
from turbo_lab.records.journal import Journal
from turbo_lab.records.redact import redact
from turbo_lab.records.schema import EngineFacts, Record
from turbo_lab.workload.conversation import own_requests
from turbo_lab.workload.request import workload_digest

NEEDED_FREE_BYTES = 64 * MiB


@dataclass(frozen=True)
class Options:
    """How a run is carried out; nothing here changes what is measured.

    ``engine`` replaces what the server tells of itself (a caller who started it knows better).
    ``price_per_hour`` of the whole server, for the cost per million tokens.
    """

    resume: bool = False
    calibrate: bool = True
    sample_every_s: float = INTERVAL_S
    study: str = "bench"
    effort: str = "quick"
    command: tuple[str, ...] | None = None
    engine: EngineFacts | None = None
    price_per_hour: float | None = None
    progress: Progress = field(default_factory=Silent)

    def __post_init__(self) -> None:
        """Refuse what would fail in the middle of a run."""
        if not 0.01 <= self.sample_every_s < math.inf:
            raise UsageError(
                f"resources are sampled every {self.sample_every_s!r} s; give 0.01 s or more"
            )
        if self.price_per_hour is not None and not 0 <= self.price_per_hour < math.inf:
            raise UsageError(f"the price per hour is {self.price_per_hour!r}; give 0 or more")


@dataclass(frozen=True)
class BenchRun:
    """A finished (or ended) run: its record, its folder, and the error that ended it, if any."""

    record: Record
    folder: Path
    evidence: gates.Evidence
    interrupted: bool = False
    problem: TurboLabError | None = None


def run_bench(
    base_url: str, *, plan: BenchPlan, out: str | Path, options: Options | None = None
) -> BenchRun:
    """Measure one plan against one server and leave a folder with journal and record.

    Raises:
        UsageError: the folder holds another run, or the plan changed under ``resume``.
        EngineError: the server does not answer a first small request.
        RecordError: the folder cannot be written. What was measured stays loadable.
    """
    options = options or Options()
    folder = user_path(out)
    target = Target(base_url, timeout_s=plan.timeout_s)
    plan, saved = _plan_to_run(folder, plan, options)
    _check_disk(folder)
    if saved is not None and not saved.missing() and (folder / run_folder.RECORD_NAME).exists():
        return _already_done(folder, saved)
    server = read_server(target, model=plan.model)
    options.progress.say(f"server: {describe_server(server)}")
    requests, dialect = _requests(base_url, plan, server)
    if saved is None:
        journal = run_folder.begin(folder, _header(plan, base_url, server, dialect, requests))
    else:
        _same_server(saved.header, server)
        journal = Journal(folder / run_folder.REQUESTS_NAME)
    with journal:
        calibration = _calibration(plan, options)
        return _measure(
            base_url, plan, folder, options, journal=journal, requests=requests, server=server,
            dialect=dialect, calibration=calibration,
        )  # fmt: skip


def _already_done(folder: Path, saved: run_folder.SavedRun) -> BenchRun:
    record = store.load(folder / run_folder.RECORD_NAME)
    evidence = gates.Evidence(plan=saved.plan, timelines=saved.ordered(), lost=saved.lost)
    return BenchRun(record, folder, evidence)


def _plan_to_run(
    folder: Path, plan: BenchPlan, options: Options
) -> tuple[BenchPlan, run_folder.SavedRun | None]:
    """A new plan with its own prompt salt, or the one of the run to continue."""
    exists = (folder / run_folder.REQUESTS_NAME).exists()
    if not options.resume:
        if exists:
            raise UsageError(
                f"{folder} already holds a run. Give another --out, or continue it with --resume"
            )
        salt = plan.prompt_salt or int.from_bytes(os.urandom(4), "big")
        return replace(plan, prompt_salt=salt), None
    if not exists:
        raise UsageError(f"{folder} holds no run to continue")
    saved = run_folder.load_run(folder)
    begun = saved.plan
    wanted = replace(plan, prompt_salt=begun.prompt_salt)
    if wanted.digest() != begun.digest():
        old, new = begun.variables(), wanted.variables()
        names = sorted(k for k in old.keys() | new.keys() if old.get(k) != new.get(k))
        raise UsageError(
            f"{folder} was begun with other settings ({', '.join(names)}). Continue it with its "
            "own, or start a new run in another folder"
        )
    return begun, saved


def _check_disk(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(folder).free
    except OSError as error:
        raise RecordError(
            f"{folder} cannot be written: {error.strerror or error}. Give another --out."
        ) from error
    if free < NEEDED_FREE_BYTES:
        raise RecordError(
            f"only {format_bytes(free)} are free in {folder}; a run needs "
            f"{format_bytes(NEEDED_FREE_BYTES)}. Free some space or give another --out."
        )


def _requests(base_url: str, plan: BenchPlan, server: Server) -> tuple[list[Item], Dialect]:
    context = server.config.get("max_model_len")
    require_context(plan, context_tokens=context if isinstance(context, int) else None)
    tokenizer = load_tokenizer(plan.tokenizer or server.folder, required=bool(plan.tokenizer))
    dialect = learn_dialect(base_url, plan=plan, tokenizer=tokenizer)
    return build_requests(plan, dialect=dialect, tokenizer=tokenizer), dialect


def _header(
    plan: BenchPlan,
    base_url: str,
    server: Server,
    dialect: Dialect,
    requests: Sequence[Item],
) -> dict[str, Any]:
    return {
        "plan": plan.to_dict(),
        "plan_digest": plan.digest(),
        "base_url": hide_key(base_url),
        "begun_at": utc_now(),
        "dialect": dict(dialect.__dict__),
        "prompts_digest": workload_digest(own_requests(requests)),
        "server": redact(settings.of_engine(server.engine)),
    }


def _same_server(header: Mapping[str, Any], server: Server) -> None:
    """A resumed run must not mix two configurations."""
    now = json.loads(json.dumps(redact(settings.of_engine(server.engine))))
    changed = settings.differences(header["server"], now)
    if changed:
        raise UsageError(
            f"the server changed since this run was begun: {', '.join(sorted(changed))}. "
            "Start a new run in another folder"
        )


def _calibration(plan: BenchPlan, options: Options) -> Calibration | None:
    if not options.calibrate:
        return None
    options.progress.say("calibrating the client on a local mock (about 3 s) ...")
    try:
        return calibrate(
            rate_req_s=plan.request_rate(),
            concurrency=plan.concurrency,
            output_tokens=plan.output_tokens,
        )
    except (EngineError, OSError) as error:
        options.progress.say(f"the calibration failed, the client is unchecked: {error}")
        return None


def _measure(
    base_url: str,
    plan: BenchPlan,
    folder: Path,
    options: Options,
    *,
    journal: Journal,
    requests: Sequence[Item],
    server: Server,
    dialect: Dialect,
    calibration: Calibration | None,
) -> BenchRun:
    before = run_folder.load_run(folder)
    missing, stale = before.missing(), before.stale()
    session = len(before.sessions) + 1
    journal.append({"kind": "session", "started_at": utc_now(), "clock_s": time.perf_counter()})
    if stale:
        journal.append({"kind": "anew", "indexes": stale})
    writer, rows = None, []
    if missing:
        options.progress.begin(plan.requests, plan.requests - len(missing))
        sampler = _sampler(base_url, folder, options, server, session)
        with contextlib.suppress(OSError):
            sampler.start()
        try:
            writer = send_all(
                base_url, plan=plan, requests=requests, missing=missing, journal=journal,
                progress=options.progress,
            )  # fmt: skip
        finally:
            rows = sampler.stop()
            with contextlib.suppress(OSError):  # The terminal may be gone; the record is not.
                options.progress.end()
    return _finish(
        base_url, folder, options, server=server, dialect=dialect, calibration=calibration,
        writer=writer, rows=rows,
    )  # fmt: skip


def _sampler(
    base_url: str, folder: Path, options: Options, server: Server, session: int
) -> Sampler:
    name = run_folder.RESOURCES_NAME if session == 1 else f"resources-{session}.jsonl"
    pids = {"client": os.getpid()}
    if server.process is not None and server.process.pid != os.getpid():
        pids["server"] = server.process.pid
    return Sampler(
        folder / name, pids=pids, metrics_url=Target(base_url).url("/metrics"),
        interval_s=options.sample_every_s,
    )  # fmt: skip


def _finish(
    base_url: str,
    folder: Path,
    options: Options,
    *,
    server: Server,
    dialect: Dialect,
    calibration: Calibration | None,
    writer: Writer | None,
    rows: Sequence[Mapping[str, Any]],
) -> BenchRun:
    saved = run_folder.load_run(folder)
    evidence = gates.Evidence(
        plan=saved.plan,
        timelines=saved.ordered(),
        resources=rows,
        calibration=calibration,
        sessions=len(saved.sessions),
        lost=saved.lost,
        restarted=saved.restarted,
        ending=writer.how if writer else "finished",
    )
    record = make_record(
        evidence, base_url=base_url, server=server, dialect=dialect, options=options, saved=saved
    )
    problem = writer.problem if writer else None
    try:
        store.write(record, folder / run_folder.RECORD_NAME)
        record = store.load(folder / run_folder.RECORD_NAME)
    except RecordError as error:
        problem = problem or error
    interrupted = bool(writer and writer.how == "interrupted")
    return BenchRun(record, folder, evidence, interrupted, problem)
