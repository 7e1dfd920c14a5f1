"""Tables of figures that pages and Markdown share."""

from __future__ import annotations

from dataclasses import dataclass

from reports.sorting import sort_keys


@dataclass(frozen=True, slots=True)
class Heading:
    """A column: its header, what it means (shown as a hint), whether it holds words, whether it names the row."""

    name: str
    meaning: str = ""
    is_text: bool = False
    names_row: bool = False


@dataclass(frozen=True, slots=True)
class FigureTable:
    """Headings and rows, in their order without a script; every row has an entry for each heading."""

    headings: tuple[Heading, ...]
    rows: list[list[str]]

    @property
    def sortable_rows(self) -> list[tuple[str, list[tuple[Heading, str]]]]:
        """For each row its sort keys as JSON, and its entries with their headings."""
        are_text = [heading.is_text for heading in self.headings]
        return [(sort_keys(row, are_text), list(zip(self.headings, row, strict=True))) for row in self.rows]
