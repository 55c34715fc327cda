"""A report as one HTML file that can be sent to a colleague: pictures inlined, tables that sort, no other file needed.

It is made from ``report.md``, so that both say the same. Nothing is loaded from elsewhere: a content security policy
forbids it.
"""

from __future__ import annotations

import base64
import html
import re
from pathlib import Path

from markdown_it import MarkdownIt

from analysis.errors import UsageError
from analysis.report.markdown import anchor
from analysis.runlog.writing import write_atomic

REPORT, HTML = "report.md", "report.html"

_STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, sans-serif; color: #222; max-width: 60rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.6rem; line-height: 1.2; }
h2 { font-size: 1.25rem; margin-top: 2.2rem; border-bottom: 1px solid #ddd; }
img { max-width: 100%; height: auto; }
.scroll { overflow-x: auto; margin: 1rem 0; }
table { border-collapse: collapse; font-size: 0.875rem; font-variant-numeric: tabular-nums; }
th, td { padding: 0.3rem 0.6rem; border-bottom: 1px solid #ddd; white-space: nowrap; }
td:first-child { white-space: normal; min-width: 8rem; }
.scroll th, .scroll td { text-align: left; }
thead th { border-bottom: 2px solid #777; vertical-align: bottom; white-space: normal; }
th button { all: unset; cursor: pointer; } th button:focus-visible { outline: 2px solid #0072B2; }
th[aria-sort=ascending] button::after { content: " \\25B2"; }
th[aria-sort=descending] button::after { content: " \\25BC"; }
tbody tr:nth-child(even) { background: #f7f7f7; }
a { color: #0060a0; }
@media print {
  body { max-width: none; font-size: 10pt; } a { color: inherit; text-decoration: none; }
  h2 { break-after: avoid; } img, tr { break-inside: avoid; } .scroll { overflow: visible; }
  th, td { white-space: normal; padding: 0.15rem 0.3rem; font-size: 8pt; }
}
"""

# A column sorts by its numbers where its cells begin with one ("+0.31 (...)", "1,200", "58.4%", "<1e-12"), else as
# text.
_SCRIPT = """
const value = (cell) => {
  const text = cell.textContent.trim().replace(/,(?=\\d{3})/g, "").replace(/^</, "").replace("\\u2212", "-");
  const number = parseFloat(text);
  return Number.isNaN(number) ? null : number;
};
for (const table of document.querySelectorAll("table")) {
  const body = table.tBodies[0];
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    const button = document.createElement("button");
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const rows = [...body.rows];
      const numeric = rows.some((row) => value(row.cells[column]) !== null);
      rows.sort((a, b) => {
        const [x, y] = [a.cells[column], b.cells[column]];
        if (!numeric) return x.textContent.localeCompare(y.textContent, undefined, { numeric: true });
        const [p, q] = [value(x), value(y)];
        if (p === null || q === null) return (p === null) - (q === null);
        return p - q;
      });
      if (down) rows.reverse();
      body.append(...rows);
    });
  });
}
"""


def write_html(folder: Path) -> Path:
    """Write ``report.html`` beside the ``report.md`` of ``folder``; returns its path.

    Raises UsageError if there is no report, or the folder cannot be written.
    """
    try:
        text = (folder / REPORT).read_text(encoding="utf-8")
        write_atomic(folder / HTML, to_html(text, folder))
    except OSError as error:
        raise UsageError(f"cannot write {folder / HTML}: {error.strerror}; choose another folder") from error
    return folder / HTML


def to_html(markdown: str, folder: Path) -> str:
    """The page of a report. Pictures and data files are looked up in ``folder``; a missing picture keeps its name."""
    body = MarkdownIt("commonmark").enable("table").render(markdown)
    body = re.sub(r"<h2>(.*?)</h2>", _heading, body)
    body = body.replace("<table>", '<div class="scroll"><table>').replace("</table>", "</table></div>")
    body = re.sub(r'<img src="([^"]+)"', lambda m: f'<img src="{_inlined(m[1], folder)}"', body)
    body = re.sub(r'<a href="([^"#]+\.csv)">', lambda m: f'<a download href="{_inlined(m[1], folder)}">', body)
    title = re.search(r"<h1>(.*?)</h1>", body)
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title[1] if title else 'draftlab report'}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f"{body}<script>{_SCRIPT}</script>\n</body>\n</html>\n"
    )


def _heading(match: re.Match[str]) -> str:
    return f'<h2 id="{anchor(html.unescape(match[1]))}">{match[1]}</h2>'


_KINDS = {".png": "image/png", ".svg": "image/svg+xml", ".csv": "text/csv"}


def _inlined(name: str, folder: Path) -> str:
    path = folder / html.unescape(name)
    if not path.is_file() or path.suffix not in _KINDS:
        return name
    return f"data:{_KINDS[path.suffix]};base64,{base64.b64encode(path.read_bytes()).decode()}"
