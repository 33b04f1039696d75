"""Sphinx extension: notebooks of the gallery contain the output of the run that made its pages.

Sphinx-gallery executes each script, writes code, output and figures to a page in reStructuredText, and the code to a
notebook without output. This extension reads the output of each block from the page and adds it to the notebook.
"""

import base64
import json
import re
import textwrap
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

from sphinx.application import Sphinx

#: What sphinx-gallery writes before each block of a page.
_BLOCK = re.compile(r"^\.\. GENERATED FROM PYTHON SOURCE LINES [\d-]+\n", re.MULTILINE)
_CODE = re.compile(r"^\.\. code-block:: Python\n", re.MULTILINE)
_FIGURE = re.compile(r"^\s*\.\. image-sg:: (\S+\.png)", re.MULTILINE)
_PRINTED = re.compile(
    r"^\.\. rst-class:: sphx-glr-script-out\n\n \.\. code-block:: none\n\n((?:    .*\n|\n)+)", re.MULTILINE
)
#: Links to other pages, which a notebook has not.
_LINK = re.compile(r":doc:`([^`<]+?)\s*<([^`>]+)>`")


def read_outputs(page: str, folder: Path) -> list[list[dict[str, Any]]]:
    """Return the outputs of each code block of a page, as a notebook stores them.

    Parameters
    ----------
    page
        The page in reStructuredText, as sphinx-gallery writes it.
    folder
        What the paths of figures are relative to.
    """
    outputs = []
    for block in _BLOCK.split(page)[1:]:
        if _CODE.search(block) is None:
            continue
        # Without the footer of the page, which has images of its own.
        block = block.partition("\n.. _sphx_glr_download_")[0]
        found = [_stream(textwrap.dedent(text).strip("\n") + "\n") for text in _PRINTED.findall(block)]
        found += [_picture(folder / path.lstrip("/")) for path in _FIGURE.findall(block)]
        outputs.append(found)
    return outputs


def fill_notebook(notebook: dict[str, Any], outputs: list[list[dict[str, Any]]]) -> None:
    """Add the outputs to the code cells of a notebook, one list per cell, and turn links into links of notebooks."""
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for number, (cell, found) in enumerate(zip(cells, outputs, strict=True), 1):
        cell["outputs"] = found
        cell["execution_count"] = number
    for cell in notebook["cells"]:
        if cell["cell_type"] == "markdown":
            cell["source"] = [_LINK.sub(_markdown_link, "".join(cell["source"]))]


def fill_all(app: Sphinx) -> None:
    """Fill all notebooks of the gallery, once sphinx-gallery has run."""
    folder = Path(app.srcdir)
    for path in sorted((folder / "gallery").rglob("*.ipynb")):
        notebook = json.loads(path.read_text(encoding="utf8"))
        outputs = read_outputs(path.with_suffix(".rst").read_text(encoding="utf8"), folder)
        fill_notebook(notebook, outputs)
        path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf8")
        # Sphinx-gallery made the archive before.
        with ZipFile(path.with_suffix(".zip"), "w", ZIP_DEFLATED) as archive:
            for member in (path.with_suffix(".py"), path):
                archive.write(member, member.name)


def _markdown_link(link: re.Match[str]) -> str:
    """Return a link to the notebook of another step, or the text of a link to another page."""
    text, target = link.groups()
    is_step = target.startswith("/gallery/tutorial/")
    return f"[{text}]({target.rpartition('/')[2]}.ipynb)" if is_step else f"*{text}*"


def _stream(text: str) -> dict[str, Any]:
    return {"output_type": "stream", "name": "stdout", "text": [text]}


def _picture(path: Path) -> dict[str, Any]:
    image = base64.b64encode(path.read_bytes()).decode("ascii")
    return {"output_type": "display_data", "data": {"image/png": image}, "metadata": {}}


def setup(app: Sphinx) -> dict[str, Any]:
    """Fill the notebooks after sphinx-gallery, whose priority is 500."""
    app.connect("builder-inited", fill_all, priority=600)
    return {"parallel_read_safe": True}
