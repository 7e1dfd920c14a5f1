"""Pages from the templates beside this package: all escaped, a name that is missing an error."""

from __future__ import annotations

import re
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

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
    environment.filters["breakable_name"] = breakable_name
    environment.filters["sort_keys"] = sort_keys
    return environment.get_template(template).render(**values)


def breakable_name(name: str) -> Markup:
    """A variant's name, escaped, with leave to break a line behind its parts: ``kv_`` and ``q4_0``."""
    return Markup(re.sub(r"_(?!\d)", "_<wbr>", str(escape(name))))
