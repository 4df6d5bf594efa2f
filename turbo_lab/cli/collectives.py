"""``turbo-lab collectives``: bandwidth of a collective over real processes, as in nccl-tests."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from turbo_lab.parallel.launch import Place


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("collectives")(collectives)


def collectives(
    kind: Annotated[
        str,
        typer.Option(
            help="all_reduce, all_gather, reduce_scatter, all_to_all, broadcast or sendrecv."
        ),
    ] = "all_reduce",
    ranks: Annotated[int, typer.Option(help="Processes, 2 to 8.")] = 2,
    link: Annotated[
        str, typer.Option(help="Rate such as 1gbit: a host for each rank; none: plain loopback.")
    ] = "none",
    hosts: Annotated[str, typer.Option(help="Kind of hosts: auto, namespaces or paced.")] = "auto",
    sizes: Annotated[
        str | None, typer.Option(metavar="1K,64K,1M", help="Default: 1K to 16M, times 4.")
    ] = None,
    iterations: Annotated[int, typer.Option(help="Timed calls per size.")] = 10,
    warm_up: Annotated[int, typer.Option(help="Calls before them.")] = 2,
    threads: Annotated[int | None, typer.Option(help="CPU threads of each rank.")] = None,
    held_out: Annotated[
        bool,
        typer.Option(
            "--held-out", help="Two passes over 2 to RANKS ranks: error of the cost model."
        ),
    ] = False,
    deadline_s: Annotated[float, typer.Option(help="Seconds for the whole run.")] = 300.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Run one collective over a range of sizes and print time, algbw, busbw and wrong elements.

    Exit code 1 when an element is wrong. With a GPU for each rank: NCCL.
    With --held-out the cost model is fitted on every other size and compared with those between,
    beside what the two passes differ by (A/A); exit code 1 when the median error is above both
    15 % and A/A.

    Examples:\n
      turbo-lab collectives --kind all_reduce --ranks 2\n
      turbo-lab collectives --kind all_reduce --ranks 4 --link 1gbit --json\n
      turbo-lab collectives --kind all_to_all --ranks 3 --sizes 64K,1M --link 100mbit\n
      turbo-lab collectives --held-out --ranks 4 --link 1gbit
    """
    from turbo_lab.core.errors import UsageError
    from turbo_lab.parallel import sweep

    kind = sweep.check_kind(kind)
    if not 2 <= ranks <= 8 or iterations < 1 or warm_up < 0:
        raise UsageError(
            f"--ranks {ranks}, --iterations {iterations}, --warm-up {warm_up}; allowed: 2 to 8 "
            "ranks, 1 or more iterations, 0 or more for warm-up"
        )
    if threads is not None and threads < 1:
        raise UsageError(f"--threads {threads}; allowed: 1 or more")
    if not 0 < deadline_s < float("inf"):
        raise UsageError(f"--deadline-s {deadline_s}; allowed: a finite number above 0")
    if link == "none" and hosts != "auto":
        raise UsageError(f"--hosts {hosts} needs a link between them, e.g. --link 1gbit")
    if held_out:
        chosen = sweep.parse_sizes(sizes) if sizes else None
        _held_out(kind, chosen, ranks=ranks, link=link, hosts=hosts, deadline_s=deadline_s,
                  as_json=as_json)  # fmt: skip
        return
    work = {
        "kind": kind,
        "sizes": sweep.parse_sizes(sizes) if sizes else sweep.SIZES,
        "iterations": iterations,
        "warm_up": warm_up,
    }
    facts = measure(work, ranks=ranks, link=link, hosts=hosts, threads=threads,
                    deadline_s=deadline_s)  # fmt: skip
    typer.echo(json.dumps(facts, indent=1) if as_json else facts_text(facts))
    if any(row["wrong"] for row in facts["rows"]):
        raise typer.Exit(1)


def measure(
    work: dict[str, Any],
    *,
    ranks: int,
    link: str,
    hosts: str,
    threads: int | None,
    deadline_s: float,
) -> dict[str, Any]:
    """Launch the sweep; returns rows and all that belongs beside them."""
    from turbo_lab.parallel import sweep
    from turbo_lab.parallel.launch import launch

    with places(ranks, link=link, kind=hosts) as (place, label):
        run = launch(
            "turbo_lab.parallel.sweep:sweep_job", ranks=ranks, arguments=work, threads=threads,
            deadline_s=deadline_s, place=place,
        )  # fmt: skip
    rows = sweep.sweep_rows(work["kind"], run.results)
    return {
        "kind": work["kind"],
        "ranks": ranks,
        "backend": run.backend,
        "device": run.device,
        "threads_per_rank": run.threads_per_rank,
        **label,
        "iterations": work["iterations"],
        "warm_up": work["warm_up"],
        "how": run.results[0][-1]["how"],
        "rows": [row.to_dict() for row in rows],
    }


def _held_out(
    kind: str,
    sizes: tuple[int, ...] | None,
    *,
    ranks: int,
    link: str,
    hosts: str,
    deadline_s: float,
    as_json: bool,
) -> None:
    """Survey, fit, compare, print; exit code 1 where the model is worse than limit and noise."""
    from turbo_lab.network.accuracy import LIMIT, accuracy_text, held_out_accuracy, together
    from turbo_lab.parallel.survey import SIZES, by_pass, survey

    with places(ranks, link=link, kind=hosts) as (place, label):
        rows = survey(kinds=(kind,), sizes=sizes or SIZES, ranks=tuple(range(2, ranks + 1)),
                      place=place, deadline_s=deadline_s)  # fmt: skip
    found = held_out_accuracy(by_pass(rows))
    if as_json:
        table = [
            {"ranks": one.ranks, "error": one.median, "worst": one.worst,
             "same_again": one.same_again, "within": one.within()}
            for one in found
        ]  # fmt: skip
        facts = {"kind": kind, **label, "limit": LIMIT, "accuracy": table}
        typer.echo(json.dumps({**facts, "rows": [row.to_dict() for row in rows]}, indent=1))
    else:
        head = f"# cost model at held-out sizes; link: {label['link']}; hosts: {label['hosts']}"
        typer.echo(f"{head}\n{accuracy_text(found)}")
    if not together(found).within() or any(row.wrong for row in rows):
        raise typer.Exit(1)


@contextmanager
def places(
    ranks: int, *, link: str, kind: str
) -> Iterator[tuple[Callable[[int], Place] | None, dict[str, Any]]]:
    """Where the ranks run, and what to say about the network between them."""
    from turbo_lab.parallel.launch import Place

    if link == "none":
        yield None, {"link": "loopback, not shaped", "hosts": "none", "hosts_why": "not asked for"}
        return
    from turbo_lab.network.links import open_hosts

    with open_hosts(ranks, link=link, kind=kind) as opened:
        label = {
            "link": opened.link.describe(),
            "hosts": opened.kind,
            "hosts_why": opened.why,
        }
        yield (lambda rank: Place.on(opened, rank)), label


def facts_text(facts: dict[str, Any]) -> str:
    """The table with its header lines."""
    from turbo_lab.parallel import sweep

    rows = [sweep.Row(**row) for row in facts["rows"]]
    head = [
        f"# {facts['kind']}: {facts['ranks']} ranks, {facts['backend']} on {facts['device']}, "
        f"{facts['threads_per_rank']} thread(s) each; mean of {facts['iterations']} calls of the "
        f"slowest rank, {facts['warm_up']} warm-up calls",
        f"# link: {facts['link']}; hosts: {facts['hosts']} ({facts['hosts_why']})",
    ]
    if facts["how"]:
        head.append(f"# {facts['kind']} is run as: {facts['how']}")
    return "\n".join([*head, sweep.table_text(facts["kind"], rows)])
