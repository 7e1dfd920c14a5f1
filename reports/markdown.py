"""``report.md``: GitHub Markdown, for issues and pull requests."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from reports.beside_engines import TITLE as ENGINES
from reports.figure_table import FigureTable
from reports.page import Page, read_page
from reports.profile_words import page as profile_page
from reports.same_bits import TITLE as SAME_BITS
from reports.streams import COLUMNS as STREAM_COLUMNS
from reports.streams import EXPLANATION, stream_notes, stream_rows
from reports.talker_and_cp import COLUMNS
from reports.wording import NOTHING, clip, one_line
from reports.writing import replace_text

SIZE_LIMIT_BYTES = 1_000_000
"""A CI job's summary on GitHub takes 1 MiB; a report stays below."""

FACT_LIMIT, GROUP_LIMIT = 160, 40
"""Characters of a machine fact, and facts of a group, that the compact list shows."""


def write_markdown(run_dir: Path, out: Path) -> None:
    """Write the Markdown report of ``run_dir`` to ``out``.

    Raises:
        bench.records.UnreadableRecordError: the run folder cannot be read; nothing is written.
        OSError: ``out`` cannot be written.
    """
    replace_text(out, render_markdown(read_page(run_dir)))


def render_markdown(page: Page) -> str:
    """The whole document."""
    parts = [
        f"# {escape(page.title)}",
        escape(page.subtitle),
        f"**{escape(page.verdict.headline)}**",
        escape(page.verdict.second),
        "\n".join(f"- {escape(note)}" for note in page.verdict.notes),
        "## Cells",
        _main_table(page),
        escape(page.roof),
        *_beside_engines(page),
        "## Talker and code predictor",
        "\n".join(f"- {escape(text)}" for text in page.talker),
        table_of(list(COLUMNS), page.steps, [False, True, True, True, True]) if page.steps else "",
        *_same_bits(page),
        *_streams(page),
        "## Where a frame's time goes",
        *_profile_parts(page),
        "## Gate",
        _gate_table(page),
        "## Machine",
        "\n".join(_machine_lines(page)) or "No machine facts were recorded.",
        "## How to reproduce",
        code_block(page.summary.run.command),
        table_of(["", ""], page.reproduction),
        "## Not measured",
        "\n".join(f"- {escape(text)}" for text in page.not_measured) or "Nothing was left out.",
        "## Reference",
        table_of(["", "talker ms a step", "CP ms a frame", "both", "RTF"], page.reference),
        "## How to read these figures",
        "\n".join(f"- {escape(text)}" for text in page.how_to_read),
    ]
    return bounded("\n\n".join(part for part in parts if part) + "\n")


def escape(text: str) -> str:
    """``text`` as one line that Markdown shows literally, in a table or outside."""
    text = one_line(text, 10_000)
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    text = re.sub(r"([\\`*|~])", r"\\\1", text)
    text = re.sub(r"\](?=[(:\[])", r"\\]", text)
    return re.sub(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])", r"\\_", text)


def _main_table(page: Page) -> str:
    if not page.rows:
        return "This run has no cells."
    header = [column.name for column in page.columns]
    body = []
    for row in page.rows:
        notes = [note for note in (row.entries[-1], row.reason) if note and note != NOTHING]
        body.append([*row.entries[:-1], "; ".join(notes) or NOTHING])
    right = [not column.is_text for column in page.columns]
    return table_of(header, body, right)


def _same_bits(page: Page) -> list[str]:
    found = page.same_bits
    if found is None:
        return []
    parts = [f"## {SAME_BITS}", escape(" ".join(text for text in (found.intro, found.headline) if text))]
    if found.table is not None:
        parts.append(_figures(found.table))
    if found.drafts is not None:
        parts += ["### What became of drafts", escape(" ".join(found.drafts.words)), _figures(found.drafts.table)]
        if found.drafts.curve_table is not None:
            parts += [*(escape(text) for text in found.drafts.curve_words), _figures(found.drafts.curve_table)]
    return parts


def _beside_engines(page: Page) -> list[str]:
    found = page.beside_engines
    return [] if found is None else [f"## {ENGINES}", *(escape(text) for text in found.words), _figures(found.table)]


def _figures(table: FigureTable) -> str:
    return table_of(
        [heading.name for heading in table.headings], table.rows, [not heading.is_text for heading in table.headings]
    )


def _streams(page: Page) -> list[str]:
    if page.streams is None:
        return []
    table = table_of(
        list(STREAM_COLUMNS), stream_rows(page.streams), [False, *[True] * (len(STREAM_COLUMNS) - 2), False]
    )
    notes = "\n".join(f"- {escape(note)}" for note in stream_notes(page.streams))
    return ["## Several utterances at once", escape(EXPLANATION), table, notes]


def _gate_table(page: Page) -> str:
    body = []
    for row in page.gates:
        failed = "; ".join(f"failed: {name}{f' ({detail})' if detail else ''}" for name, detail in row.failed)
        body.append([row.cell, row.status, row.checks, f"{row.detail}; {failed}" if failed else row.detail])
    return table_of(["cell", "gate", "checks held", "detail"], body) if body else "No gate was run."


def _profile_parts(page: Page) -> list[str]:
    if page.profile is None:
        return [escape(page.without_profile)]
    shown = profile_page(page.profile)
    right = [False] + [True] * (len(shown.columns) - 1)
    first = f"{page.profile.variant} × {page.profile.threads}: {shown.headline}"
    return [escape(first), table_of(shown.columns, shown.rows, right), "\n".join(f"- {escape(t)}" for t in shown.notes)]


def _machine_lines(page: Page) -> Iterable[str]:
    for group in page.machine:
        shown = [
            f"{escape(name)}: {escape(clip(value, FACT_LIMIT))}" if name else escape(clip(value, FACT_LIMIT))
            for name, value in group.facts[:GROUP_LIMIT]
        ]
        rest = len(group.facts) - GROUP_LIMIT
        yield (
            f"- **{escape(group.name)}**: " + "; ".join(shown) + (f"; {rest} more in machine.json" if rest > 0 else "")
        )


def table_of(header: list[str], body: Iterable[Iterable[str]], right: list[bool] | None = None) -> str:
    """A table of escaped entries; ``right`` says which columns are set to the right."""
    rule = ["---:" if is_right else "---" for is_right in right or [False] * len(header)]
    lines = [[escape(name) for name in header], rule, *([escape(entry) for entry in row] for row in body)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def code_block(command: str) -> str:
    """A shell command, whatever it holds, between fences."""
    longest = max((len(run) for run in re.findall(r"`+", command)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}sh\n{clip(command)}\n{fence}"


def bounded(text: str) -> str:
    """``text``, cut at a line's end where it is larger than a CI job's summary may be."""
    raw = text.encode()
    if len(raw) <= SIZE_LIMIT_BYTES:
        return text
    kept = raw[:SIZE_LIMIT_BYTES].decode(errors="ignore").rsplit("\n", 1)[0]
    return f"{kept}\n\nThe rest was left out for its size; report.html has it.\n"
