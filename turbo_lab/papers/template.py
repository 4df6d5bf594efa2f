"""The sources' template: its fields in English and Chinese, an empty record, and a shown one."""

from __future__ import annotations

from typing import Any

from turbo_lab.papers.schema import PaperRecord

UNFINISHED = "to be written"
# English name, Chinese name (as in the sources), what belongs there.
FIELDS: dict[str, tuple[str, str, str]] = {
    "title": ("Title", "论文标题", ""),
    "venue": ("Venue and year", "会议/年份", ""),
    "problem": ("Core problem", "核心问题", "one sentence: what the paper wants to solve"),
    "resource": ("Resource optimised", "优化资源", "compute, memory, scheduling, network"),
    "stage": ("Stage", "优化阶段", "prefill, decode or cross_stage"),
    "deployment": ("Single node or distributed", "单机 or 分布式", ""),
    "hardware_coupling": ("Hardware coupling", "硬件耦合度", "low, medium or high"),
    "layers": ("Layer", "优化层次", "compute, model_parameter, runtime, system_and_network"),
    "method": ("Main method", "主要方法", "the mechanism in your own words"),
    "setting": ("Experimental setting", "实验环境", "models, GPUs, network, data, baselines"),
    "conditions": ("Stated conditions", "指标口径", "which of the six are stated"),
    "claims": ("Key results", "关键结论", "each number with what it holds for"),
    "holds": ("When the number holds", "成立条件", ""),
    "lesson": ("For our engineering", "对工程启示", "can it move into our project?"),
    "usable_now": ("Usable now", "可以直接用", ""),
    "not_now": ("Not usable now", "暂时用不了", ""),
    "testable_small": ("Testable at small scale", "可在小规模环境验证", ""),
    "needs_purchase": ("Needs a purchase", "需要额外采购", ""),
    "availability": ("Availability of the service", "可用性", "does the service stay available?"),
    "upkeep": ("Maintenance cost", "维护成本", "low, medium or high, and why"),
    "verify": ("To verify when reproducing", "待验证问题", ""),
    "code": ("Code", "代码", ""),
    "status": ("How well known", "信息状态", "per field, where it is not simply reported"),
    "sources": ("Sources", "来源", ""),
}
STATUS_ZH = {
    "confirmed": "已确认", "reported": "据来源", "artifact": "仅见于代码产物", "secondary": "二手",
    "memory": "凭记忆", "measured": "我们的测量", "unknown": "未知",
}  # fmt: skip


def label(name: str, *, lang: str = "en") -> str:
    """The field's name in English (``en``), Chinese (``zh``) or both (``both``)."""
    english, chinese, _ = FIELDS[name]
    return {"en": english, "zh": chinese}.get(lang, f"{english} / {chinese}")


def empty_record(paper_id: str, *, title: str = "") -> str:
    """YAML of a new record: every field with its question; UNFINISHED marks what is not written."""

    def line(name: str, value: str, key: str | None = None, indent: str = "") -> str:
        english, chinese, hint = FIELDS[name]
        note = f"{english} / {chinese}" + (f": {hint}" if hint else "")
        return f"{indent}{key or name}: {value}  # {note}"

    todo = '"to be written: in your own words, at least thirty letters"'
    rows = [
        "# What you do not know stays null. Statuses: confirmed, reported, artifact, secondary,",
        "# memory, measured, unknown.",
        f"id: {paper_id}",
        line("title", f'"{title or UNFINISHED}"'),
        f'short_name: "{paper_id}"',
        line("venue", "null"),
        "year: null", "arxiv: null", "doi: null", "authors: null",
        "axes:",
        line("resource", "[memory]", indent="  "),
        line("stage", "decode", indent="  "),
        line("deployment", "single_node", indent="  "),
        line("hardware_coupling", "low", indent="  "),
        line("layers", "[runtime]"),
        line("problem", todo), line("method", todo),
        line("setting", "{models: null, gpus: null, network: null, dataset: null, "
             "baselines: null}"),
        line("conditions", "{precision: false, input: false, output: false, concurrency: false, "
             "framework: false, gpu: false}"),
        line("holds", todo),
        "claims:  # " + " / ".join(FIELDS["claims"][:2]),
        f'  - what: "{UNFINISHED}"', "    number: null", f'    holds: "{UNFINISHED}"',
        "    changed: []  # precision, batch, logging, hardware, model: what else differs",
        "    against: null  # mainstream, naive, itself, bound, none",
        "    counted: null  # all, survivors",
        line("lesson", todo), line("verify", todo),
        "transfer:",
        *(line(name, "null", indent="  ") for name in ("usable_now", "not_now")),
        line("testable_small", f'"{UNFINISHED}"', indent="  "),
        line("needs_purchase", "null", indent="  "),
        line("availability", f'"{UNFINISHED}"'),
        line("upkeep", f'{{level: low, why: "{UNFINISHED}"}}'),
        line("code", "null"),
        "needs_hardware: []", "version_drift: null", "notebooks: []", "confidence: mixed",
        "from_memory: []",
        line("sources", f'["{UNFINISHED}"]'),
        "note: null",
        line("status", "{}"),
    ]  # fmt: skip
    return "\n".join(rows) + "\n"


def shown(record: PaperRecord, *, lang: str = "en") -> list[tuple[str, str]]:
    """(label, text) of each field of the template, in its order."""
    r, t = record, record.transfer
    values: dict[str, Any] = {
        "title": r.title,
        "venue": f"{r.venue or 'unknown'} {r.year or ''}".strip(),
        "problem": r.problem,
        "resource": ", ".join(r.axes.resource),
        "stage": r.axes.stage,
        "deployment": r.axes.deployment,
        "hardware_coupling": r.axes.hardware_coupling,
        "layers": ", ".join(r.layers),
        "method": r.method,
        "setting": "; ".join(f"{k}: {v or 'unknown'}" for k, v in r.setting.model_dump().items()),
        "conditions": ", ".join(
            f"{name} {'stated' if given else 'not stated'}"
            for name, given in r.conditions.model_dump().items()
        ),
        "claims": "; ".join(f"{c.what}: {c.number or 'not found'} ({c.holds})" for c in r.claims),
        "holds": r.holds,
        "lesson": r.lesson,
        **{name: value or "-" for name, value in t.model_dump().items()},
        "availability": r.availability,
        "upkeep": f"{r.upkeep.level}: {r.upkeep.why}",
        "verify": r.verify,
        "code": r.code or "unknown",
        "status": _statuses(r, lang),
        "sources": "; ".join(r.sources),
    }
    return [(label(name, lang=lang), str(values[name])) for name in FIELDS]


def _statuses(record: PaperRecord, lang: str) -> str:
    def named(status: str) -> str:
        return status if lang == "en" else STATUS_ZH[status]

    rows = [f"{named(s)}: {', '.join(names)}" for s, names in record.by_status().items()
            if s != "reported"]  # fmt: skip
    return "; ".join(rows) or named("reported")
