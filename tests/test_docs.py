"""What the documentation says must be what the specifications say."""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]


def test_operator_page_is_made_from_the_specifications() -> None:
    done = subprocess.run([sys.executable, "tools/operator_docs.py", "--check"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_links_between_pages_lead_somewhere() -> None:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    links = [(page, target) for page in pages for target in re.findall(r"\]\(([^)#:]+?)(?:#[^)]*)?\)", page.read_text())]
    assert links
    assert [(page.name, target) for page, target in links if not (page.parent / target).exists()] == []


def test_the_first_program_of_the_readme_runs() -> None:
    program = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert program
    small = program.group(1).replace("4096, 8192", "64, 128")
    done = subprocess.run([sys.executable, "-c", small], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("161002 anycann.gelu_backward_v2: grad_output must broadcast with ")
