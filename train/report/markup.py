"""HTML of the report: style, escaping, tables, and the one script that draws the charts.

Everything that comes from a log or a config is text: it is escaped where it enters HTML, and where it enters a script
it holds no "<", so no name of a cell can end an element or begin one.
"""

import functools
import html
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import altair as alt
import vl_convert

from train.errors import UserError
from train.report.charts import FONT
from train.report.words import printable

STYLE = """
:root { color-scheme: light; }
body { margin: 0 auto; padding: 1.5rem 2rem 4rem; max-width: 74rem; color: #1b1b1b; background: #fff;
       font: 16px/1.5 FONT; }
h1 { font-size: 1.75rem; margin: 0 0 .2rem; }
h2 { font-size: 1.25rem; margin: 2.4rem 0 .6rem; padding-bottom: .25rem; border-bottom: 1px solid #d0d0d0; }
h3 { font-size: 1rem; margin: 1.3rem 0 .4rem; }
p, figcaption { max-width: 62rem; }
.lead { font-size: 1.05rem; margin: .2rem 0 1rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; margin: 0; font-size: .9rem; color: #333; }
dt { color: #666; } dd { margin: 0; overflow-wrap: anywhere; }
figure { margin: .6rem 0 1.4rem; } .chart { overflow-x: auto; }
figcaption, .note { font-size: .9rem; color: #444; margin: .35rem 0; }
.warning { border-left: 4px solid #D55E00; padding: .4rem .8rem; background: #fdf3ec; }
.tables figure { flex: 1 1 30rem; }
.tables { display: flex; flex-wrap: wrap; gap: .8rem 2.4rem; align-items: flex-start; }
.scroll { overflow: auto; max-height: 30rem; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: bold; padding: .2rem 0; white-space: nowrap; }
thead th { border-bottom: 1.5px solid #333; border-top: 1.5px solid #333; background: #fff; }
tbody tr:last-child > * { border-bottom: 1.5px solid #333; }
th, td { padding: .18rem .7rem; text-align: right; white-space: nowrap; font-weight: normal; }
th:first-child, .text { text-align: left; } td small { color: #666; }
pre { font-size: .8rem; background: #f6f6f6; padding: .8rem; overflow: auto; max-height: 30rem; }
summary { cursor: pointer; }
""".replace("FONT", FONT)

# Vega compiles its expressions, hence unsafe-eval. Nothing may be fetched from anywhere.
POLICY = "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; img-src data:"

DRAW = """
(function () {
  for (const [id, spec] of Object.entries(SPECS)) {
    vegaEmbed("#" + id, spec, {actions: false, renderer: "svg", mode: "vega-lite"}).catch(function (error) {
      document.getElementById(id).textContent = "This chart could not be drawn: " + error;
    });
  }
})();
"""


def escape(value: Any) -> str:
    """Text for HTML, elements and attributes alike."""
    return html.escape(printable(value), quote=True)


def escape_block(text: str) -> str:
    """Text of several lines for HTML."""
    return "\n".join(html.escape(line, quote=True) for line in text.split("\n"))


def script_json(value: Any) -> str:
    """JSON that may stand inside a script element: strict, and without "<", which ends elements and begins comments."""
    return json.dumps(value, allow_nan=False, ensure_ascii=True).replace("<", "\\u003c").replace(">", "\\u003e")


@functools.cache
def _libraries() -> str:
    """Vega, Vega-Lite and Vega-Embed of the version that the charts are written for, to stand in a script element."""
    version = ".".join(alt.VEGALITE_VERSION.split(".")[:2])
    bundle = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=version)
    return bundle.replace("</script", "<\\/script")


class Figures:
    """The charts of a page: each gives a place in the HTML, and its spec goes into the one script that draws all."""

    def __init__(self) -> None:
        self.specs: dict[str, Any] = {}

    def add(self, chart: alt.TopLevelMixin | None, caption: str) -> str:
        """The place of a chart with its caption (HTML); nothing for no chart."""
        if chart is None:
            return ""
        spec = chart.to_dict()
        # An address of the schema; nobody fetches it, but a page without any address is easier to trust.
        spec.pop("$schema", None)
        name = f"chart{len(self.specs)}"
        self.specs[name] = spec
        return f'<figure><div class="chart" id="{name}"></div><figcaption>{caption}</figcaption></figure>'

    def script(self) -> str:
        """The libraries and the specs; nothing for a page without charts."""
        if not self.specs:
            return ""
        return f"<script>{_libraries()}</script>\n<script>{DRAW.replace('SPECS', script_json(self.specs))}</script>"


def grid(head: Sequence[str], lines: Iterable[Sequence[str]], caption: str = "", text: int = 1) -> str:
    """A table from escaped cells; the first ``text`` columns are words, set to the left."""
    body = "".join(
        "<tr>"
        + "".join(
            f"<{'th' if i == 0 else 'td'}{' class=text' if i < text else ''}>{cell}</{'th' if i == 0 else 'td'}>"
            for i, cell in enumerate(line)
        )
        + "</tr>"
        for line in lines
    )
    heads = "".join(f"<th{' class=text' if i < text else ''}>{cell}</th>" for i, cell in enumerate(head))
    title = f"<caption>{caption}</caption>" if caption else ""
    return f"<table>{title}<thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"


def document(title: str, header: str, body: str, figures: Figures) -> str:
    """A page that loads nothing. ``title``: text; header and body: HTML, with the places of the figures."""
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<title>{escape(title)}</title>
<style>{STYLE}</style>
</head>
<body>
<header>{header}</header>
<noscript><p class="warning">The charts need JavaScript; the tables do not.</p></noscript>
<main>
{body}
</main>
{figures.script()}
</body>
</html>
"""


def write_page(page: str, output: Path) -> Path:
    """Write a page and return its path. Raises UserError where the disk refuses."""
    try:
        output.write_text(page, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise UserError(f"{output}: {error.strerror or error}") from error
    return output
