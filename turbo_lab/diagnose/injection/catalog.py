"""The one table of faults, and a walk through it with the doctor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from turbo_lab.core.errors import UnmeasuredError, UsageError, did_you_mean
from turbo_lab.diagnose.injection.fault import Examined, Fault, judge
from turbo_lab.diagnose.injection.figures import figures
from turbo_lab.diagnose.injection.network_faults import NETWORK_FAULTS
from turbo_lab.diagnose.injection.process_faults import PROCESS_FAULTS
from turbo_lab.diagnose.injection.request_faults import REQUEST_FAULTS
from turbo_lab.diagnose.injection.start_faults import START_FAULTS
from turbo_lab.diagnose.injection.views import row_text
from turbo_lab.diagnose.injection.ward import Ward

# Those that end a server come last.
FAULTS: tuple[Fault, ...] = (*REQUEST_FAULTS, *NETWORK_FAULTS, *START_FAULTS, *PROCESS_FAULTS)
STARTS_AT_ONCE = 2


def fault_named(name: str) -> Fault:
    """One row of the table. Raises UsageError naming the nearest ones."""
    table = {fault.name: fault for fault in FAULTS}
    if name not in table:
        raise UsageError(f"There is no fault {name!r}.{did_you_mean(name, [*table])}")
    return table[name]


def examine(ward: Ward, fault: Fault, *, on: bool = True) -> Examined:
    """Inject a fault (or, off, the same probe without it), let the doctor look, take it out.

    Where this machine cannot inject it, the result holds the reason and no causes. Raises
    EngineError when a patient does not answer.
    """
    try:
        with fault.inject(ward, on) as evidence:
            return judge(fault, evidence, on=on, limits=ward.patient.limits,
                         numbers=figures(evidence))  # fmt: skip
    except UnmeasuredError as error:
        return Examined(fault.name, on, fault.causes, fault.consequences, reason=str(error))


def examine_starts(ward: Ward, faults: Sequence[Fault]) -> list[Examined]:
    """Faults with a start of their own, two at a time: each loads for seconds and then ends."""
    with ThreadPoolExecutor(STARTS_AT_ONCE) as starters:
        return list(starters.map(lambda fault: examine(ward, fault), faults))


def examine_all(
    ward: Ward,
    faults: Sequence[Fault] = FAULTS,
    *,
    report: Callable[[str], None] = print,
) -> list[Examined]:
    """Every fault, off first and then on, in the order of the table. Opens the ward where needed.

    A failed start has the patient's healthy start as its off-control.
    """
    ward.open()
    starts = [fault for fault in faults if fault.when == "start"]
    found = iter(examine_starts(ward, starts))
    rows = []
    for fault in faults:
        rows.append(examine(ward, fault, on=False))
        rows.append(next(found) if fault.when == "start" else examine(ward, fault))
        report(row_text(rows[-1]))
    return rows
