"""From a prediction and a measurement to a verdict. The only place where verdicts are made."""

from __future__ import annotations

from collections.abc import Iterable

from turbo_lab.records.schema import ComparisonRow, Measurement, Prediction, Verdict

# A relative tolerance of 0.1 on 1.0 must admit 1.1, whose difference is 0.1 plus one rounding.
ROUNDING = 1e-9


def within(prediction: Prediction, measured: float) -> bool:
    """True when ``measured`` lies in the prediction's band or relative tolerance (ends included).

    A tolerance of zero asks for equality.
    """
    if prediction.band is not None:
        low, high = prediction.band
        return (low is None or measured >= low) and (high is None or measured <= high)
    assert prediction.value is not None and prediction.tolerance is not None
    allowed = prediction.tolerance * abs(prediction.value)
    return abs(measured - prediction.value) <= allowed * (1 + ROUNDING)


def judge(prediction: Prediction, measurement: Measurement | None) -> ComparisonRow:
    """One row of the table. ``measurement`` is None when it has not been asked for yet."""
    measured = measurement.value if measurement else None
    reason = prediction.reason or (measurement.reason if measurement else "not asked for yet")
    verdict: Verdict = "unmeasured"
    if reason is None and measured is not None:
        verdict = "met" if within(prediction, measured) else "not met"
    ratio = measured / prediction.value if measured is not None and prediction.value else None
    return ComparisonRow(
        name=prediction.name,
        unit=prediction.unit,
        predicted=prediction.value,
        measured=measured,
        published=prediction.published,
        published_claim=prediction.published_claim,
        ratio=ratio,
        tolerance=prediction.tolerance,
        band=prediction.band,
        verdict=verdict,
        reason=reason,
        n=sum(s is not None for s in measurement.samples) if measurement else 0,
    )


def compare_rows(
    predictions: Iterable[Prediction], measurements: Iterable[Measurement]
) -> tuple[ComparisonRow, ...]:
    """The whole table, in the order in which the predictions were made."""
    by_name = {m.name: m for m in measurements}
    return tuple(judge(p, by_name.get(p.name)) for p in predictions)


def count_met(rows: Iterable[ComparisonRow]) -> int:
    """How many predictions came true."""
    return sum(row.verdict == "met" for row in rows)
