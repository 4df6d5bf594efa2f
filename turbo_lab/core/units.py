"""Units. GiB (2^30) and GB (10^9) are different things and are never mixed."""

from __future__ import annotations

KiB, MiB, GiB, TiB = 2**10, 2**20, 2**30, 2**40
KB, MB, GB, TB = 10**3, 10**6, 10**9, 10**12


def format_bytes(count_bytes: float) -> str:
    """Bytes as text in binary units, e.g. ``4.00 GiB``. Below 1 KiB: whole bytes."""
    sign, size = ("-" if count_bytes < 0 else ""), abs(count_bytes)
    for unit, name in ((TiB, "TiB"), (GiB, "GiB"), (MiB, "MiB"), (KiB, "KiB")):
        if size >= unit:
            return f"{sign}{size / unit:.2f} {name}"
    return f"{sign}{size:.0f} B"


def format_seconds(duration_s: float | None) -> str:
    """Seconds as text: ``12.3 ms`` below one second, ``1.23 s`` above; ``undefined`` for None."""
    if duration_s is None:
        return "undefined"
    if abs(duration_s) < 1.0:
        return f"{duration_s * 1e3:.1f} ms"
    return f"{duration_s:.2f} s"
