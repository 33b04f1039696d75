"""Sphinx extension that renders equations as MathML, so that pages need no scripts and load nothing."""

from typing import Any

from docutils import nodes
from docutils.utils.math import latex2mathml
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator


def _render_inline(self: HTML5Translator, node: nodes.math) -> None:
    """Write an equation within a line of text."""
    self.body.append(latex2mathml.tex2mathml(node.astext()))
    raise nodes.SkipNode


def _render_block(self: HTML5Translator, node: nodes.math_block) -> None:
    """Write a displayed equation."""
    self.body.append(f'<div class="math">{latex2mathml.tex2mathml(node.astext(), as_block=True)}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the renderer and make it the default."""
    app.add_html_math_renderer("mathml", inline_renderers=(_render_inline, None), block_renderers=(_render_block, None))
    app.config.html_math_renderer = "mathml"
    return {"parallel_read_safe": True}
