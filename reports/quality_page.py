"""What ``bench quality`` found, as a page and as Markdown, both rendered from the same rows and sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.records import Summary
from bench.records.quality import Quality
from bench.records.recipe import RecipeFound, Sensitivity
from reports import quality_recipes as recipes
from reports import quality_tables as tables
from reports.bar_drawing import Chart
from reports.markdown import escape, table_of
from reports.quality_chart import pareto_chart
from reports.quality_points import budget_of, point_rows, points, recommendation, share
from reports.quality_words import cannot_tell, how_to_read, reproduction
from reports.rendering import rendered
from reports.sensitivity_chart import sensitivity_chart
from reports.wording import one_line
from reports.writing import replace_text

NO_RUN = (
    "No sweep was given, so there are no times: python -m bench quality-report QUALITY.json --run RUN_DIR draws "
    "agreement beside them."
)


@dataclass(frozen=True, slots=True)
class Section:
    """A heading, what to know before its table, and the table; a plot above it, where there is one."""

    title: str
    intro: str
    columns: tuple[str, ...]
    rows: Sequence[Sequence[str]]
    chart: Chart | None = None
    caption: str = ""


@dataclass(frozen=True, slots=True)
class QualityPage:
    """One measurement, put into words and rows; no markup yet."""

    title: str
    subtitle: str
    warning: str
    headline: str
    below_floor: str
    recommendation: str
    chart: Chart | None
    point_rows: list[tuple[str, ...]]
    sections: list[Section]
    heats: list[tables.Heat]
    outcomes: list[tuple[str, str, str]]
    how_to_read: list[str]
    cannot_tell: list[str]
    reproduction: list[tuple[str, str]]
    point_columns: tuple[str, ...] = field(default=("variant × threads", "ms a frame", "agreement", ""))


def make_quality_page(
    found: Quality,
    summary: Summary | None = None,
    sensitivity: Sensitivity | None = None,
    recipe: RecipeFound | None = None,
) -> QualityPage:
    """Put a measurement into words and rows, with what else was recorded of the same weights where it is given.

    Args:
        found: the measurement.
        summary: a run's times.
        sensitivity: each class of matrices quantised alone.
        recipe: a search for a recipe.
    """
    placed = points(found, summary) if summary is not None else []
    facts, measured = found.facts, [cell for cell in found.cells if cell.teacher_forced is not None]
    kept = "; ".join(
        f"{cell.variant} keeps {share(cell.teacher_forced.agreement)}" for cell in measured if cell.teacher_forced
    )
    subtitle = (
        found.model.name,
        f"{facts.golden_frames} frames",
        facts.started_utc,
        f"commit {facts.commit}{' (with uncommitted changes)' if facts.dirty else ''}",
    )
    return QualityPage(
        title="How far is each code predictor from what the model says?",
        subtitle=" · ".join(one_line(part, 120) for part in subtitle),
        warning=found.warning,
        headline=f"Of the codes that float32 chooses, the earlier ones pinned: {kept}."
        if kept
        else "No variant was measured.",
        below_floor=found.below_floor,
        recommendation=NO_RUN if summary is None else recommendation(placed, summary, found.floor),
        chart=pareto_chart(placed, budget_of(summary)[0]) if summary is not None else None,
        point_rows=point_rows(placed),
        sections=[section for section in (*_sections(found), *_recipe_sections(sensitivity, recipe)) if section.rows],
        heats=tables.heats(found),
        outcomes=[
            (
                f"{cell.variant} × {cell.threads}",
                cell.status,
                one_line(cell.reason or (cell.gate.detail if cell.gate else ""), 500),
            )
            for cell in found.cells
        ],
        how_to_read=how_to_read(found),
        cannot_tell=cannot_tell(found),
        reproduction=reproduction(found),
    )


def _sections(found: Quality) -> list[Section]:
    loop = found.float_rollout
    talker = "" if loop is None else f"In the loop is {loop.talker}. "
    return [
        Section(
            "Codes pinned",
            "Logits beside float32's, the golden's codes fed back, so that each code is judged by itself.",
            tables.PINNED, tables.pinned_rows(found.cells, lambda cell: cell.teacher_forced),
        ),
        Section(
            f"Recorded codes pinned: {found.facts.recorded}",
            "Logits beside float32's, codes of recorded speech fed back.",
            tables.PINNED, tables.pinned_rows(found.cells, lambda cell: cell.recorded),
        ),
        Section(
            f"Recorded codes as sound: {found.facts.recorded}",
            "CB0 is the recording's, the other codes are what each would have chosen there; samples and 80 mel bands "
            "beside those of float32's choices, through the official decoder.",
            recipes.AUDIO, recipes.audio_rows(found.cells),
        ),
        Section(
            "Beside the naive implementation",
            "The allowance is measured, not chosen: root mean square distance of each frame's logits at most twice "
            "that of an implementation that only rounds (weights dequantised, activations rounded, float32 sums).",
            tables.NAIVE, tables.naive_rows(found.cells),
        ),
        Section(
            "Free-running",
            "Its own codes fed back. One early difference forks the rest of a frame, so this falls off a cliff where "
            "the pinned figures do not.",
            tables.FREE, tables.free_rows(found.cells),
        ),
        Section(
            "Long rollout",
            f"{talker}Each variant's own loop beside float32's: a collapsed one repeats itself, or uses few codes.",
            tables.LOOP, tables.loop_rows(found),
        ),
    ]  # fmt: skip


def _recipe_sections(sensitivity: Sensitivity | None, recipe: RecipeFound | None) -> list[Section]:
    sections = []
    if sensitivity is not None:
        sections.append(
            Section(
                "Which matrices bear to be quantised",
                f"One class of matrices in another format, the others as the model has them ({sensitivity.frames} "
                "frames, codes pinned). Damages add up nearly, not exactly.",
                recipes.SENSITIVITY,
                recipes.sensitivity_rows(sensitivity),
                sensitivity_chart(sensitivity),
                "Down and right is better: much saved, little lost. The scale of divergence is logarithmic.",
            )
        )
    if recipe is not None:
        sections.append(Section("Recipe", recipes.recipe_words(recipe), recipes.BESIDE, recipes.beside_rows(recipe)))
        sections.append(
            Section(
                "How the recipe was found",
                "Each step is what lost least for what it saved, beside the steps before it; what was given back "
                "widened the recipe where the budget had room.",
                recipes.PATH,
                recipes.path_rows(recipe),
            )
        )
    return sections


def write_quality_html(page: QualityPage, out: Path) -> None:
    """Write the page to ``out``: one file, no network, light and dark.

    Raises:
        OSError: ``out`` cannot be written.
    """
    replace_text(out, render_quality_html(page))


def write_quality_markdown(page: QualityPage, out: Path) -> None:
    """Write the Markdown to ``out``.

    Raises:
        OSError: ``out`` cannot be written.
    """
    replace_text(out, render_quality_markdown(page))


def render_quality_html(page: QualityPage) -> str:
    """The whole document."""
    return rendered("quality.html.j2", page=page)


def render_quality_markdown(page: QualityPage) -> str:
    """The whole document in GitHub Markdown; heat maps are tables without shades."""
    parts = [
        f"**{escape(page.warning)}**" if page.warning else "",
        f"# {escape(page.title)}",
        escape(page.subtitle),
        f"**{escape(page.headline)}**",
        escape(page.below_floor),
        escape(page.recommendation),
        table_of(list(page.point_columns), page.point_rows) if page.point_rows else "",
    ]
    for section in page.sections:
        parts += [f"## {escape(section.title)}", escape(section.intro), table_of(list(section.columns), section.rows)]
    for heat in page.heats:
        body = [[name, *(entry for entry, _ in entries)] for name, entries in heat.rows]
        parts += [f"## {escape(heat.title)}", table_of(heat.columns, body)]
    parts += [
        "## What the figures cannot tell",
        "\n".join(f"- {escape(text)}" for text in page.cannot_tell),
        "## How to read them",
        "\n".join(f"- {escape(text)}" for text in page.how_to_read),
        "## Gate",
        table_of(["variant × threads", "outcome", "detail"], page.outcomes),
        "## How to reproduce",
        table_of(["", ""], page.reproduction),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"
