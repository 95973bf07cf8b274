"""A comparison as one HTML file that needs nothing else: the picture is in it, and all text is escaped."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable
from html import escape

from paceline.compare.table import cells, heads, legend
from paceline.compare.whole import Report

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem; padding: 0 1rem; color: #1c2733; }
table { border-collapse: collapse; margin: 1rem 0; }
th, td { padding: .3rem .8rem; text-align: right; border-bottom: 1px solid #dde3ea; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
td:first-child, code, pre { font-family: ui-monospace, monospace; }
pre { background: #f3f6f9; padding: .8rem; white-space: pre-wrap; }
img { max-width: 100%; }
.error { color: #a4262c; }
"""


def page(report: Report, png: bytes) -> str:
    picture = b64encode(png).decode("ascii")
    title = f"{report.comparison.name} under {len(report.models)} models"
    about = ", ".join(f"{name} {value}" for name, value in report.versions.items())
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>{escape(title)}</title>
<style>{STYLE}</style>
</head>
<body>
<h1>{escape(title)}</h1>
<pre>{escape(report.command)}</pre>
{_table(heads(report), cells(report))}
{_paragraphs(legend(report))}
{_failures(report)}
<p><img alt="accuracy over time, time to the target and shares of computing" src="data:image/png;base64,{picture}"></p>
{_slowness(report)}
<p>Measured with {escape(about)}.</p>
</body>
</html>
"""


def _table(titles: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = "".join(f"<th>{escape(title)}</th>" for title in titles)
    body = "\n".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table>\n<tr>{head}</tr>\n{body}\n</table>"


def _paragraphs(lines: Iterable[str]) -> str:
    return "\n".join(f"<p>{escape(line)}</p>" for line in lines)


def _failures(report: Report) -> str:
    return "\n".join(
        f'<p class="error">{escape(row.sync)}, seed {row.seed}, has failed:</p>\n<pre>{escape(row.error or "")}</pre>'
        for row in report.failed
    )


def _slowness(report: Report) -> str:
    slow = report.comparison.slow
    return _paragraphs([f"Slowness that was asked for: {', '.join(slow)}." if slow else "Nobody was slowed down."])
