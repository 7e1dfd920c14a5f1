"""Turns a run folder into something to read: ``report.html`` and ``report.md``.

A run folder holds ``summary.json`` and ``records.jsonl`` (`bench.records`, the only module of the lab that this
package imports). The two reports are rendered from the same rows and sentences (`reports.page`), so they cannot
disagree.
"""

from reports.html import write_html
from reports.markdown import write_markdown
from reports.verdict import verdict

__all__ = ["verdict", "write_html", "write_markdown"]
