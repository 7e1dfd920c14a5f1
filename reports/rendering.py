"""Pages from the templates beside this package: all escaped, a name that is missing an error."""

from __future__ import annotations

from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from reports.sorting import sort_keys
from reports.wording import keep_together


def rendered(template: str, **values: Any) -> str:
    """The whole document that a template makes of values."""
    environment = Environment(
        loader=PackageLoader("reports", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["keep_together"] = keep_together
    environment.filters["sort_keys"] = sort_keys
    return environment.get_template(template).render(**values)
