"""The gallery holds the strongest pairs, with the inputs that excite each unit and both."""

from functools import cache

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from explaining import random_points
from state_comparison import model_state
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import geh_explain as geh
from geh_explain.posterior import Ensemble, PointEstimate


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


def product_net():
    """Hidden units 0 and 1 are x0 and x1, and only they are multiplied (by a softplus of their sum)."""
    hidden = nn.Linear(3, 3)
    top = nn.Linear(3, 2)
    with torch.no_grad():
        hidden.weight.copy_(torch.eye(3))
        hidden.bias.zero_()
        top.weight.copy_(torch.tensor([[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]))
        top.bias.zero_()
    return nn.Sequential(hidden, nn.Dropout(0.1), top, nn.Softplus(), nn.Linear(2, 1)).eval()


def test_thumbnails_are_the_strongest_exemplars():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(12, 3), nn.Tanh(), nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 1))
    explainer, x = geh.GEHExplainer(net, "1", posterior=PointEstimate()), torch.rand(50, 1, 3, 4)
    result = explainer.explain(x, groups=2, progress=False)
    gallery = explainer.interpret(result, x, pairs=3, k=2, ascent=False, progress=False)
    images = gallery.images()
    assert set(images) == set(result.names)
    activations = net[1](x.flatten(1))
    for unit, name in enumerate(result.names):
        best = x[int(activations[:, unit].argmax()), 0]
        assert images[name].shape == (3, 4, 3)
        assert np.corrcoef(images[name][..., 0].ravel(), best.numpy().ravel())[0, 1] == pytest.approx(1)
    assert len(result.plot.network(images=images).artists) == 3


def test_rows_of_a_table_have_no_thumbnails(product_result):
    explainer, result = product_result
    gallery = explainer.interpret(result, three_features(), pairs=1, ascent=False, progress=False)
    with pytest.raises(geh.GEHError, match="thumbnails need images"):
        gallery.images()


@cache
def three_features():
    """Return candidates (300, 3) in single precision."""
    return random_points(300, 3, dtype=torch.float)


@pytest.fixture
def product_result():
    explainer = geh.GEHExplainer(product_net(), "0")
    return explainer, explainer.explain(three_features(), groups=2, draws=20, progress=False)


def interpret(explainer, result, candidates=None, **options):
    candidates = three_features() if candidates is None else candidates
    return explainer.interpret(result, candidates, **{"progress": False, "ascent": {"steps": 40}} | options)


def test_the_strongest_pair_has_the_score_of_the_table(product_result):
    explainer, result = product_result
    (pair,) = interpret(explainer, result, pairs=1).pairs
    row = result.table().iloc[0]
    assert pair.units == ("0[0]", "0[1]") == (row["unit_i"], row["unit_j"])
    assert (pair.mean, pair.low, pair.high) == pytest.approx((row["mean"], row["low"], row["high"]))
    assert pair.regions.equals(result.regions(0, 1))


def test_exemplars_are_those_of_the_two_units(product_result):
    explainer, result = product_result
    (pair,) = interpret(explainer, result, pairs=[("0[2]", "0[1]")], k=4).pairs
    assert pair.units == ("0[1]", "0[2]")
    for row, unit in enumerate((1, 2)):
        assert pair.exemplars.indices[row].tolist() == three_features()[:, unit].argsort(descending=True)[:4].tolist()


def test_exemplars_have_the_names_of_the_result():
    explainer = geh.GEHExplainer(product_net(), "0")
    names = [f"neuron {number}" for number in range(product_net()[0].out_features)]
    result = explainer.explain(three_features(), groups=2, draws=20, names=names, progress=False)
    for view in interpret(explainer, result, ascent=False).pairs:
        assert view.exemplars.names == list(view.units)
        assert set(view.units) <= set(names)


def test_both_are_the_highest_smooth_minimum_of_standardised_values(product_result):
    explainer, result = product_result
    (pair,) = interpret(explainer, result, pairs=1, k=5).pairs
    z = ((three_features() - three_features().mean(0)) / three_features().std(0, correction=0))[:, :2]
    lower = z.amin(dim=1)
    assert float(lower[pair.both.indices[0]].min()) > float(lower.sort(descending=True).values[10])
    assert torch.equal(pair.both.inputs[0], three_features()[pair.both.indices[0]])


def test_both_may_have_candidates_of_their_own(product_result):
    explainer, result = product_result
    joint = 10 + torch.rand(50, 3)
    (pair,) = interpret(explainer, result, pairs=1, joint=joint).pairs
    assert float(pair.both.inputs.min()) >= 10
    assert float(pair.exemplars.inputs.max()) < 10


def test_the_ascent_stays_within_the_candidates_range_and_excites_both(product_result):
    explainer, result = product_result
    (pair,) = interpret(explainer, result, pairs=1, ascent={"steps": 300}).pairs
    low, high = three_features().amin(dim=0), three_features().amax(dim=0)
    first, second, both = pair.ascent.inputs
    assert first[0] == high[0]
    assert second[1] == high[1]
    assert torch.equal(both[:2], high[:2])
    assert bool((pair.ascent.inputs >= low).all())


def test_without_ascent(product_result):
    explainer, result = product_result
    assert interpret(explainer, result, ascent=False).pairs[0].ascent is None
    assert interpret(explainer, result, ascent={}).pairs[0].ascent is not None


def test_columns_of_a_table_have_each_their_own_range(product_result):
    explainer, result = product_result
    wide = three_features() * torch.tensor([1.0, 1000.0, 1.0])
    (pair,) = interpret(explainer, result, wide, pairs=1, ascent={"steps": 300}).pairs
    low, high = wide.amin(dim=0), wide.amax(dim=0)
    assert bool(((pair.ascent.inputs >= low) & (pair.ascent.inputs <= high)).all())
    assert pair.ascent.inputs[2, :2].tolist() == pytest.approx(high[:2].tolist())


def test_a_result_with_another_unit_set_is_refused(product_result):
    explainer, result = product_result
    net, posterior = explainer.model, PointEstimate()
    for units in (geh.units.Subset([0, 1]), geh.units.Subset([1, 0, 2])):
        with pytest.raises(ValueError, match="result: its units are"):
            interpret(geh.GEHExplainer(net, "0", units=units, posterior=posterior), result, pairs=[(0, 1)])


def test_a_saved_result_gives_the_same_exemplars(product_result, tmp_path):
    explainer, result = product_result
    again = geh.Interactions.load(result.save(tmp_path / "r"))
    assert interpret(explainer, again).pairs[0].exemplars.indices.tolist() == (
        interpret(explainer, result).pairs[0].exemplars.indices.tolist()
    )


def test_reprs_are_short(product_result):
    gallery = interpret(*product_result, pairs=3)
    means = [f"{pair.units[0]} × {pair.units[1]}: {pair.mean:.4g}" for pair in gallery.pairs]
    assert [repr(pair) for pair in gallery.pairs] == means
    assert repr(gallery) == f"Gallery(3 pairs by geh: {', '.join(means)})"
    many_pairs = geh.interpret.Gallery(gallery.pairs * 9, "aeh")
    assert repr(many_pairs) == f"Gallery(27 pairs by aeh: {', '.join(means)}, ...)"


class Once(IterableDataset):
    """A stream that is exhausted after one pass."""

    def __init__(self):
        self.rows = iter(three_features())

    def __iter__(self):
        return self.rows


@pytest.mark.parametrize("argument", ["candidates", "joint"])
def test_candidates_that_can_be_read_only_once_are_refused(product_result, argument):
    with pytest.raises(RuntimeError, match=f"{argument}: the rows could be read only once"):
        interpret(*product_result, **{argument: Once()})


def test_readings_are_a_table(product_result):
    explainer, result = product_result
    labels = np.where(three_features()[:, 0] > 1, "large", "small")
    table = interpret(explainer, result, pairs=2).readings(labels)
    assert table["reads_i"][0] == "large, 9 of 9"
    assert list(table.columns) == ["unit_i", "unit_j", "reads_i", "reads_j", "mean", "low", "high"]


def test_loaders_and_datasets_as_candidates(product_result):
    explainer, result = product_result
    plain = interpret(explainer, result).pairs[0]
    for candidates in (
        TensorDataset(three_features(), three_features()),
        DataLoader(TensorDataset(three_features()), batch_size=7, shuffle=True),
    ):
        found = interpret(explainer, result, candidates).pairs[0]
        assert found.exemplars.indices.tolist() == plain.exemplars.indices.tolist()
        assert torch.equal(found.both.inputs, plain.both.inputs)
        assert torch.equal(found.ascent.inputs, plain.ascent.inputs)


def test_the_model_and_the_random_state_are_unchanged(product_result):
    explainer, result = product_result
    before, state = model_state(explainer.model), torch.get_rng_state()
    interpret(explainer, result, DataLoader(TensorDataset(three_features()), batch_size=7, shuffle=True))
    assert model_state(explainer.model) == before
    assert torch.equal(torch.get_rng_state(), state)


def test_units_of_a_subset_are_those_of_the_layer():
    net = product_net()
    explainer = geh.GEHExplainer(net, "0", units=geh.units.Subset([2, 0]), posterior=PointEstimate())
    with pytest.warns(geh.GEHWarning):
        result = explainer.explain(three_features(), groups=1, progress=False)
    (pair,) = interpret(explainer, result, pairs=1, k=3).pairs
    assert pair.units == ("0[2]", "0[0]")
    assert pair.exemplars.indices[0].tolist() == three_features()[:, 2].argsort(descending=True)[:3].tolist()
    assert pair.exemplars.indices[1].tolist() == three_features()[:, 0].argsort(descending=True)[:3].tolist()


def test_token_ids_have_no_ascent():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Embedding(20, 6), nn.Flatten(), nn.Linear(24, 5), nn.Tanh(), nn.Linear(5, 3), nn.Tanh())
    tokens = torch.randint(0, 20, (80, 4))
    explainer = geh.GEHExplainer(net.eval(), "3", posterior=PointEstimate())
    result = explainer.explain(tokens, 0, groups=1, progress=False)
    (pair,) = interpret(explainer, result, tokens, pairs=1).pairs
    assert pair.ascent is None
    assert pair.exemplars.inputs.shape == (2, 9, 4)


def cnn():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 60, 8), nn.Tanh(), nn.Linear(8, 1))


@pytest.mark.parametrize("labels", [False, True])
@pytest.mark.parametrize("ascent", [False, {"steps": 3}])
def test_the_figure_has_a_row_of_axes_for_each_pair(labels, ascent):
    images = torch.rand(40, 1, 8, 12)
    explainer = geh.GEHExplainer(cnn().eval(), "0", posterior=PointEstimate())
    result = explainer.explain(images, groups=2, progress=False)
    gallery = interpret(explainer, result, images, pairs=2, ascent=ascent)
    figure = gallery.plot([f"kind {n % 3}" for n in range(40)] if labels else None)
    assert len(figure.subfigs) == 2
    boxes = figure.subfigs[0].axes
    assert len(boxes) == (7 if ascent else 4)
    titles = [box.get_title() for box in boxes]
    assert any("0[" in title for title in titles)
    assert any("of 9" in title for title in titles) == labels
    rings = [line for line in boxes[0].lines if line.get_marker() == "o"]
    assert len(rings) == 9  # one for the place of each exemplar's maximum
    figure.canvas.draw()


def test_scores_are_shares_of_the_spread_of_the_output():
    """Under scale="std" a score is a change of the output, so it compares with the output's standard deviation."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 1)).eval()
    x = torch.randn(80, 3)
    explainer = geh.GEHExplainer(net, "1", posterior=PointEstimate())
    result = explainer.explain(x, groups=1, scale="std", progress=False)
    gallery = interpret(explainer, result, x, pairs=1, ascent=False)
    spread = float(net(x).detach().double().std(correction=0))
    assert gallery.output_std == pytest.approx(spread, rel=1e-5)
    headline = gallery.plot().subfigs[0]._suptitle.get_text()
    assert headline.endswith(f", {gallery.pairs[0].mean / spread:.2g} of the output's spread")
    unscaled = explainer.explain(x, groups=1, progress=False)
    assert interpret(explainer, unscaled, x, pairs=1, ascent=False).output_std is None


def test_tables_are_drawn_as_rows_of_colours(product_result):
    explainer, result = product_result
    gallery = interpret(explainer, result, pairs=1)
    shown = np.asarray(gallery.plot().subfigs[0].axes[0].images[0].get_array())
    rows = gallery.pairs[0].exemplars.inputs[0].numpy()
    # Colours between 0 and 1 are linear in the values of each column.
    assert 0 <= shown.min() < shown.max() <= 1
    for column in range(3):
        assert np.corrcoef(shown[:, column], rows[:, column])[0, 1] == pytest.approx(1, abs=1e-6)


def test_exemplars_and_maximised_inputs_have_plots():
    images = torch.rand(30, 3, 6, 6)
    net = nn.Sequential(nn.Conv2d(3, 5, 3), nn.Flatten(), nn.Linear(80, 1)).eval()
    found = geh.interpret.exemplars(net, "0", None, images, k=4, progress=False)
    figure = found.plot(labels=list("abc") * 10)
    assert sum(bool(ax.images) for ax in figure.axes) == 5
    assert "of 4" in figure.axes[0].get_title()
    painted = geh.interpret.maximise(net, "0", [0, (1, 2)], (3, 6, 6), steps=2, progress=False)
    assert len(painted.plot().axes) == 2


def test_wrong_arguments_raise(product_result):
    explainer, result = product_result
    other = geh.GEHExplainer(product_net(), "2")
    wrong = [
        (explainer, {"pairs": 0}, "pairs=0"),
        (explainer, {"pairs": "two"}, "pairs='two'"),
        (explainer, {"pairs": []}, "pairs=\\[\\]"),
        (explainer, {"pairs": [(0, 0)]}, "are the same unit"),
        (explainer, {"pairs": [(0, 7)]}, "out of range"),
        (explainer, {"k": 301}, "k=301"),
        (explainer, {"candidates": torch.randn(50, 2)}, "candidates: the model does not take"),
        (explainer, {"result": "a result"}, "no result of explain"),
        (explainer, {"ascent": {"stepz": 3}}, "ascent: \\['stepz'\\]"),
        (explainer, {"ascent": 5}, "ascent=5"),
        (explainer, {"joint": torch.randn(50, 2)}, "joint: the model does not take"),
        (explainer, {"measure": "shap"}, "measure='shap'"),
        (other, {}, "result: it is about 0, and this explainer about 2"),
    ]
    for used, change, words in wrong:
        arguments = {"result": result, "candidates": three_features()} | change
        with pytest.raises(geh.GEHError, match=words):
            interpret(used, arguments.pop("result"), arguments.pop("candidates"), **arguments)


def test_inputs_are_not_hidden_units():
    explainer = geh.GEHExplainer(product_net())
    result = explainer.explain(three_features(), groups=1, draws=5, progress=False)
    with pytest.raises(TypeError, match="name a hidden layer"):
        interpret(explainer, result)


def test_an_ensemble_has_no_hidden_units_in_common():
    nets = [product_net() for _ in range(3)]
    with pytest.raises(geh.GEHError, match="hidden"):
        geh.GEHExplainer(nets[0], "0", posterior=Ensemble(nets))
