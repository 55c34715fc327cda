"""A report as one HTML file: whole in itself, escaped, sortable, readable in a real browser."""

import re
import shutil
import subprocess
from html.parser import HTMLParser

import pytest

from analysis.errors import UsageError
from analysis.report.html import to_html, write_html

REPORT = """# A & B

**B is better**

[Overall](#overall-numbers)

![forest](figures/forest.png)

Data: [forest.csv](figures/forest.csv).

## Overall numbers

| data set | difference | verdict |
| --- | ---: | ---: |
| ten | +10.0 | B better |
| two | +2.00 | B better |
| \\<script\\>alert(1)\\</script\\> | — | inconclusive |
"""


class Page(HTMLParser):
    """Tags with their attributes, and scripts."""

    def __init__(self, text):
        super().__init__()
        self.tags = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "forest.png").write_bytes(b"\x89PNG picture")
    (tmp_path / "figures" / "forest.csv").write_text("a,b\n1,2\n")
    (tmp_path / "report.md").write_text(REPORT, encoding="utf-8")
    return tmp_path


def test_the_page_needs_no_other_file(folder):
    page = Page(write_html(folder).read_text(encoding="utf-8"))
    sources = [a[name] for _, a in page.tags for name in ("src", "href") if name in a]
    assert sources and all(s.startswith(("data:", "#")) for s in sources)
    assert ("h2", {"id": "overall-numbers"}) in page.tags and any(s == "#overall-numbers" for s in sources)
    assert sum(tag == "table" for tag, _ in page.tags) == 1 and sum(tag == "script" for tag, _ in page.tags) == 1


def test_names_stay_text(folder):
    assert "alert(1)&lt;/script&gt;" in to_html(REPORT, folder)


def test_without_a_report_there_is_no_page(tmp_path):
    with pytest.raises(UsageError, match=re.escape(str(tmp_path))):
        write_html(tmp_path)


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium here: the page is not opened in a browser")
def test_a_browser_shows_and_sorts_it(folder):
    page = write_html(folder)
    # click the header of the second column, then print what the page has become
    click = "<script>document.querySelectorAll('th button')[1].click()</script></body>"
    page.write_text(page.read_text(encoding="utf-8").replace("</body>", click), encoding="utf-8")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--dump-dom"]
    profile = f"--user-data-dir={folder / 'profile'}"
    done = subprocess.run([CHROMIUM, *flags, profile, page.as_uri()], capture_output=True, text=True, timeout=120)
    cells = re.findall(r"<tr>\s*<td>(.*?)</td>", done.stdout)
    assert cells[:2] == ["two", "ten"] and 'aria-sort="ascending"' in done.stdout
