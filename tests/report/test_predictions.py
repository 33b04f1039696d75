"""The section of the page about single predictions."""

import re

import pytest
import torch
from explaining import point_explainer

import geh_explain as geh


def explain(rows, names=None):
    explainer = point_explainer(lambda x: x[:, 0] * x[:, 1] - 3 * x[:, 2])
    result = explainer.explain(torch.randn(20, 3, generator=torch.Generator().manual_seed(0)), groups=1, progress=False)
    return result, explainer.explain_row(rows, baseline=0, names=names, progress=False)


def section(result, path, local):
    text = result.report(path, local=local).read_text()
    return re.search('<section id="local".*?</section>', text, re.S)[0]


def test_the_waterfall_is_a_table_with_the_numbers_of_the_account(tmp_path):
    result, local = explain(torch.tensor([2.0, 4.0, 1.0]))
    html = section(result, tmp_path / "page.html", local)
    rows = re.findall(r'<tr><th scope="row">(.*?)</th>.*?<td>([^<]*)</td></tr>', html)
    # Units have their values below their names.
    assert rows == [
        ("reference", "0.00"),
        ("x0 × x1", "+4.00"),
        ("x2<small>0 → 1</small>", "−3.00"),
        ("x0<small>0 → 2</small>", "+2.00"),
        ("x1<small>0 → 4</small>", "+2.00"),
        ("prediction", "5.00"),
    ]
    bars = [tuple(map(float, bar)) for bar in re.findall(r'<i style="left:([\d.]+)%;width:([\d.]+)%', html)]
    assert bars == [(0, 80), (20, 60), (20, 40), (60, 40)]  # of the range from 0 to 5
    assert "The output is 5.00, and 0.00 at the reference (zeros). Main effects add +1.00, pairs +4.00." in html


def test_several_accounts_and_a_page_without_any(tmp_path):
    result, accounts = explain(torch.tensor([[2.0, 4.0, 1.0], [1.0, 1.0, 1.0]]))
    html = section(result, tmp_path / "page.html", accounts)
    assert re.findall("<h[23][^>]*>(.*?)</h[23]>", html) == ["2 predictions", "Prediction 1 of 2", "Prediction 2 of 2"]
    assert section(result, tmp_path / "page.html", list(accounts)) == html
    assert '<section id="local"' not in result.report(tmp_path / "page.html").read_text()


def test_names_are_escaped(tmp_path):
    result, local = explain(torch.tensor([2.0, 4.0, 1.0]), names=["<script>evil()</script>", "a & b", "c"])
    html = section(result, tmp_path / "page.html", local)
    assert "<script" not in html
    assert "a &amp; b" in html


@pytest.mark.parametrize("local", ["x", 3, [1], {"a": 1}])
def test_something_else_is_refused(tmp_path, local):
    result, _ = explain(torch.ones(3))
    with pytest.raises(geh.GEHError, match=r"local: a .* is no account of a prediction"):
        result.report(tmp_path / "page.html", local=local)
