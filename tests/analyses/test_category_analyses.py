"""Categories in analyses of the network: the share of interactions, surfaces of levels, and checks by ablation."""

import matplotlib
import numpy as np
import pandas as pd
import pytest
import torch
from explaining import point_explainer, random_points

import geh_explain as geh
from geh_explain.units import Categorical

UNITS = Categorical({"c": [0, 1, 2], "d": 3})
PLACES = ["place_SEA", "place_HILL", "place_TOWN", "kind", "age"]


def mixed_points(rows=1000, seed=0):
    """Return c one-hot with shares .5, .3 and .2, d coded 1 and 3 with shares .6 and .4, and a standard normal u."""
    generator = torch.Generator().manual_seed(seed)
    c = torch.multinomial(torch.tensor([0.5, 0.3, 0.2]), rows, replacement=True, generator=generator)
    d = torch.where(torch.rand(rows, generator=generator) < 0.4, 3.0, 1.0)
    return torch.cat([torch.eye(3)[c], d[:, None], random_points(rows, 1, seed=seed + 100).float()], dim=1).double()


def mixed(x):
    """2 [c = 0] [d = 3] + u [c = 1] + u, for rows in which c is one-hot and d has one of its codes."""
    assert bool((x[:, :3].sum(1) == 1).all())
    assert bool(((x[:, :3] == 0) | (x[:, :3] == 1)).all())
    assert bool(((x[:, 3] == 1) | (x[:, 3] == 3)).all())
    return 2 * x[:, 0] * (x[:, 3] == 3) + x[:, 4] * x[:, 1] + x[:, 4]


#: Variances of the terms of ``mixed``: 4 (.25) (.24) of (c, d), .21 of (c, u); main effects .64 (.25), .24 and 1.69.
VARIANCES = {("c", "d"): 0.24, ("c", "x4"): 0.21}
TOTAL = 0.24 + 0.21 + 0.16 + 0.24 + 1.69


def explained(model=mixed, x=None, units=UNITS, **options):
    explainer = point_explainer(model, units=units)
    return explainer, explainer.explain(mixed_points() if x is None else x, groups=1, progress=False, **options)


@pytest.mark.parametrize("background", ["permuted", "conditional"])
def test_the_share_of_categories_is_that_of_levels_which_rows_exchange_as_a_whole(background):
    _, result = explained(x=mixed_points(3000))
    share = result.share(pairs=3, background=background, evaluations=200_000, progress=False)
    assert share.low < 0.45 / TOTAL < share.high
    assert share.high - share.low < 0.06
    for row in share.pairs().itertuples():
        truth = VARIANCES.get((row.unit_i, row.unit_j), 0) / TOTAL
        assert row.low - 1e-9 <= truth <= row.high + 1e-9
    if background == "permuted":
        main = share.units().set_index("unit")["main"] * TOTAL
        assert main[["c", "d", "x4"]].to_numpy() == pytest.approx([0.16, 0.24, 1.69], abs=0.12)


@pytest.mark.filterwarnings("ignore:the only pair is exactly 0:geh_explain.GEHWarning")
@pytest.mark.filterwarnings("ignore:units. category 'id' has 5 levels:geh_explain.GEHWarning")
def test_any_function_of_a_category_alone_is_a_main_effect():
    values = torch.tensor([3.0, -50.0, 0.5, 7.0, 1.0]).double()
    ids = torch.arange(400) % 5
    x = random_points(400, 1)
    units = Categorical({"id": 1}, max_levels=2)  # differences are between two levels, the share is of all five
    _, result = explained(lambda x, ids: values[ids] + torch.exp(x[:, 0]), (x, ids), units)
    assert abs(result.share(progress=False).overall) < 1e-12
    conditional = result.share(background="conditional", progress=False)
    assert abs(conditional.overall) < 1e-3
    _, result = explained(lambda x, ids: values[ids] * x[:, 0], (x, ids), Categorical({"id": 1}))
    assert result.share(progress=False).high > 0.9


def test_the_share_of_categories_does_not_depend_on_the_batch_size():
    shares = []
    for batch_size in (None, 37):
        _, result = explained(batch_size=batch_size)
        shares.append(result.share(evaluations=1, progress=False).overall)
    assert shares[0] == shares[1]


def expected_grid(x):
    """Return the joint effect of c and d in ``mixed``: 2 ([c = 0] - p) ([d = 3] - q)."""
    p, q = float(x[:, 0].mean()), float((x[:, 3] == 3).double().mean())
    return 2 * np.outer(np.array([1, 0, 0]) - p, np.array([0, 1]) - q)


def test_the_surface_of_two_categories_is_a_grid_of_their_levels():
    frame = pd.DataFrame(mixed_points().numpy(), columns=PLACES)
    units = Categorical({"place": PLACES[:3], "kind": "kind"})
    explainer, result = explained(lambda x: mixed(torch.as_tensor(x)), frame, units)
    surface = explainer.surface(frame, pair=("place", "kind"), result=result, progress=False)
    assert surface.levels == (("SEA", "HILL", "TOWN"), ("1", "3"))
    np.testing.assert_allclose(surface.values, expected_grid(mixed_points()), atol=1e-9)
    ax = surface.plot()
    assert [text.get_text() for text in ax.get_xticklabels()] == ["SEA", "HILL", "TOWN"]
    assert [text.get_text() for text in ax.get_yticklabels()] == ["1", "3"]
    assert len(ax.texts) == 6
    matplotlib.pyplot.close("all")


@pytest.mark.parametrize("pair", [("c", "x4"), ("x4", "c")])
def test_the_surface_of_a_category_and_a_number_is_one_line_per_level(pair):
    x = mixed_points()
    explainer, _ = explained()
    surface = explainer.surface(x, pair=pair, grid=9, progress=False)
    number, values = (surface.second, surface.values) if pair[0] == "c" else (surface.first, surface.values.T)
    # u ([c = 1] - p) without its mean over u, for which the grid stands.
    slopes = np.diff(values, axis=1) / np.diff(number)
    p = float(x[:, 1].mean())
    np.testing.assert_allclose(slopes, np.repeat([[-p], [1 - p], [-p]], 8, axis=1), atol=1e-9)
    ax = surface.plot()
    assert [line.get_label() for line in ax.lines[:3]] == ["x0", "x1", "x2"]
    assert ax.get_xlabel() == "x4"
    for line, drawn in zip(values, ax.lines, strict=False):
        np.testing.assert_array_equal(drawn.get_ydata(), line)
    matplotlib.pyplot.close("all")


def test_points_at_levels_that_are_left_out_have_no_place_on_a_surface_or_its_page(tmp_path):
    x = torch.stack([torch.arange(90) % 9 // 4, torch.linspace(-1, 1, 90)], dim=1).double()  # levels 0, 1 and rarely 2
    with pytest.warns(geh.GEHWarning, match="3 levels"):
        explainer, result = explained(lambda x: x[:, 0] * x[:, 1], x, Categorical({"c": 0}, max_levels=2))
    surface = explainer.surface(x, pair=("c", "x1"), result=result, grid=5, progress=False)
    assert surface.levels == (("0", "1"), None)
    assert np.isnan(surface.points[:, 0]).sum() == (x[:, 0] == 2).sum() > 0
    page = result.report(tmp_path / "page.html", surfaces=[surface], share=False).read_text(encoding="utf8")
    assert '"levels":[["0","1"],null]' in page
    assert "NaN" not in page.split('id="data"')[-1].split("</script>")[0]


@pytest.mark.parametrize("scale", [None, "std"])
def test_a_category_is_switched_off_by_its_most_frequent_level(scale):
    other = mixed_points(seed=1)
    explainer, result = explained(scale=scale)
    check = explainer.check(result, other, baseline=0, progress=False)
    observed = dict(zip(check.pairs, check.observed, strict=True))
    c, d, u = other[:, :3].argmax(1), other[:, 3], other[:, 4]
    # c <- 0 and d <- 1: [c = 0] [d = 3] changes jointly where c is not 0 and d is 3; u -> 0 acts jointly where c is 1.
    assert observed["c", "d"] == pytest.approx(float(2 * ((c != 0) & (d == 3)).double().mean()))
    assert observed["c", "x4"] == pytest.approx(float((u.abs() * (c == 1)).mean()))
    assert observed["d", "x4"] == pytest.approx(0, abs=1e-12)
    # Scores are means over pairs of levels, and steps between levels are 1.
    scores = explained()[1].geh.mean
    predicted = dict(zip(check.pairs, check.predicted, strict=True))
    assert predicted["c", "d"] == pytest.approx(
        scores[0, 1] * float(((c != 0) & (d == 3)).double().mean()), rel=0.05 if scale else 1e-9
    )


def test_scores_with_a_scale_predict_the_same_joint_effects():
    x = random_points(200, 3) * torch.tensor([1.0, 10.0, 0.1])
    explainer = point_explainer(lambda x: x[:, 0] * x[:, 1] + 50 * x[:, 1] * x[:, 2])
    for scale in (None, "std", [1.0, 2.0, 5.0]):
        result = explainer.explain(x, groups=1, scale=scale, progress=False)
        check = explainer.check(result, x, progress=False)
        np.testing.assert_allclose(check.predicted, check.observed, atol=1e-9)
