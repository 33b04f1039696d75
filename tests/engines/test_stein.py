"""Stein's engine: products against plain sums, known smoothed Hessians, scales, numbers of samples and warnings."""

import warnings

import numpy as np
import pytest
import torch
from explaining import explain_point, explain_point_quietly, random_points
from sklearn.datasets import load_digits
from torch import Tensor, nn

import geh_explain as geh
from geh_explain.engines import Stein
from geh_explain.engines.stein import engine as stein_engine
from geh_explain.engines.stein.control import ControlHessians
from geh_explain.engines.stein.products import Samples, SummedSamples

EVERYTHING = slice(None)


@pytest.fixture
def no_control(monkeypatch):
    """Without a control variate."""
    monkeypatch.setattr(stein_engine, "find_control", lambda *arguments: None)


def relu_network(units: int, hidden: int = 30) -> nn.Module:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(units, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 1))
    return net.double()


def folded(x: Tensor) -> Tensor:
    """Return |x0 + 2 x1 - x2|, whose curvature sits on one plane."""
    return (x[:, 0] + 2 * x[:, 1] - x[:, 2]).abs()


def hessian_of_folded(x: Tensor, std: np.ndarray) -> np.ndarray:
    """Return the mean Hessian, pairs (3,), of ``folded`` after convolution with noise of these standard deviations.

    The second derivative of |z| is twice a delta function, which becomes twice the normal density of the noise of z.
    """
    slopes = np.array([1.0, 2.0, -1.0])
    width = np.sqrt((slopes**2 * std**2).sum())
    z = x.numpy() @ slopes
    density = np.exp(-(z**2) / (2 * width**2)) / np.sqrt(2 * np.pi) / width
    return 2 * density.mean() * np.array([2.0, -1.0, -2.0])


def plain_samples(samples: Samples) -> np.ndarray:
    """Return L (S, n, D, D) of each sample."""
    w, v = samples.w.numpy(), samples.v.numpy()
    products = w[..., :, None] * v[..., None, :]
    return (products + products.swapaxes(-1, -2)) / 2


@pytest.mark.parametrize("count", [4, 5])
def test_matrix_products_are_the_sums_over_samples(count):
    samples = Samples(random_points(count, 6, 4), random_points(count, 6, 4, seed=1))
    local = plain_samples(samples)
    rows, columns = slice(1, 3), slice(1, None)
    block = np.s_[..., rows, columns]
    np.testing.assert_allclose(samples.first_sum(rows, columns), local.sum(0)[block])
    np.testing.assert_allclose(samples.second_sum(rows, columns), (local**2).sum(0)[block])
    np.testing.assert_allclose(samples.first_total(rows, columns), local.sum((0, 1))[block])
    differences = local[0:4:2] - local[1:4:2]
    np.testing.assert_allclose(samples.difference_total(rows, columns), (differences**2).sum((0, 1))[block])
    summed = SummedSamples()
    for part in (slice(2), slice(2, None)):
        summed.add(Samples(samples.w[part], samples.v[part]))
    np.testing.assert_allclose(summed.first_sum(rows, columns), local.sum(0)[block])
    np.testing.assert_allclose(summed.second_sum(rows, columns), (local**2).sum(0)[block])


def test_products_of_hessians_at_a_narrow_layer_are_those_at_the_units():
    hessians, linear_map, factors = random_points(3, 2, 2), random_points(2, 5, seed=1), random_points(5, seed=2).abs()
    control = ControlHessians(hessians + hessians.mT, linear_map)
    whole = control.block(EVERYTHING, EVERYTHING) * factors * factors[:, None]
    expected = torch.einsum("nij,mij->nm", whole, whole)
    matrices, diagonals = control.isometric(factors)
    np.testing.assert_allclose(torch.einsum("nij,mij->nm", matrices, matrices), expected)
    np.testing.assert_allclose(diagonals, whole.diagonal(dim1=1, dim2=2))


@pytest.mark.parametrize("controlled", [True, False])
def test_a_known_kink_is_found_within_its_standard_error(controlled, request):
    if not controlled:
        request.getfixturevalue("no_control")
    x = random_points(200, 3)
    truth = hessian_of_folded(x, 0.25 * x.numpy().std(axis=0))
    results = [explain_point(folded, x, engine=Stein(samples=6), seed=seed) for seed in range(30)]
    signed, noise = (np.stack([getattr(result, name)[0, 0] for result in results]) for name in ("signed", "noise"))
    # Errors of the three pairs are alike: 30 standardised errors, whose mean square is 1 +- 0.26.
    scores = ((signed - truth) / noise)[:, 0]
    assert (scores**2).mean() == pytest.approx(1, abs=0.8)
    assert abs(scores.mean()) < 0.5


def test_the_control_variate_leaves_the_mean_and_takes_most_of_the_noise(monkeypatch):
    x, net = random_points(100, 12), relu_network(12)
    engine = Stein(samples=40)
    with_control = explain_point(net, x, engine=engine)
    monkeypatch.setattr(stein_engine, "find_control", lambda *arguments: None)
    without = explain_point(net, x, engine=engine)
    many = explain_point(net, x, engine=Stein(samples=1000), seed=1)
    assert (with_control.noise**2).mean() < (without.noise**2).mean() / 2
    for result in (with_control, without):
        scores = (result.signed - many.signed) / np.hypot(result.noise, many.noise)
        assert (scores**2).mean() == pytest.approx(1, abs=0.5)


def test_a_quadratic_function_needs_no_samples():
    x = random_points(50, 3)
    result = explain_point(lambda x: 3 * x[:, 0] * x[:, 1] - x[:, 1] * x[:, 2], x, engine=Stein(samples=2))
    np.testing.assert_allclose(result.signed[0, 0], [3, 0, -1], atol=1e-9)


def test_absolute_scales_are_the_bandwidth():
    x = random_points(100, 2)
    # Noise of standard deviation s of both units multiplies cos(x0 + x1) by exp(-s^2).
    truth = -np.cos(x.numpy().sum(axis=1)).mean()
    for engine, sigma in ((Stein(sigma=0.8, samples=400), 0.8), (Stein(radius=1.5, samples=400), 1.125 / 2**0.5)):
        result = explain_point(lambda x: torch.cos(x.sum(1)), 1.0 * x, engine=engine)
        assert result.signed[0, 0, 0] == pytest.approx(truth * np.exp(-(sigma**2)), abs=4 * result.noise[0, 0, 0])
        assert result.noise[0, 0, 0] < 0.05 * abs(truth)


def test_constant_units_are_left_alone():
    x = random_points(60, 3)
    x[:, 1] = 2.0
    seen = []

    def model(x: Tensor) -> Tensor:
        seen.append(x[:, 1].detach().clone())
        return x.prod(1) + x[:, 0].abs() * x[:, 2]

    with pytest.warns(geh.GEHWarning, match=r"the units x1 are constant.*Stein\(sigma="):
        result = explain_point(model, x, engine=Stein(samples=8))
    assert all(bool((values == 2.0).all()) for values in seen[-4:])
    assert (result.geh.mean[1] == 0).all()
    assert result.geh.mean[0, 2] > 1


def test_one_point_needs_an_absolute_scale():
    x = random_points(1, 3)
    with pytest.raises(geh.GEHError, match=r"one value each.*Stein\(sigma=\.\.\.\) or Stein\(radius=\.\.\.\)"):
        explain_point(folded, x, engine="stein")
    result = explain_point(folded, x, engine=Stein(sigma=1.0, samples=2000))
    truth = hessian_of_folded(x, np.ones(3))
    np.testing.assert_allclose(result.signed[0, 0], truth, atol=4 * result.noise.max())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"noise": 0.5, "sigma": 0.1}, "noise=0.5, sigma=0.1 all set the scale"),
        ({"sigma": 0.1, "radius": 1.0}, "give one of them"),
        ({"sigma": 0.0}, "Stein: sigma=0.0"),
        ({"radius": "1"}, "Stein: radius='1'"),
        ({"samples": 1}, "samples=1"),
        ({"samples": "auto"}, "samples='auto'"),
        ({"error": 0.0}, "Stein: error=0.0"),
    ],
)
def test_wrong_scales_and_numbers_are_refused(arguments, words):
    with pytest.raises(geh.GEHError, match=words):
        Stein(**arguments)


@pytest.mark.parametrize("groups", [1, 40])
@pytest.mark.parametrize("controlled", [True, False])
def test_the_chosen_number_of_samples_reaches_the_error(groups, controlled, request):
    if not controlled:
        request.getfixturevalue("no_control")
    x, net = random_points(40, 8), relu_network(8)
    labels = np.arange(40) % groups
    truth = explain_point(net, x, engine=Stein(samples=4000), groups=labels, seed=9).signed
    result = explain_point(net, x, engine=Stein(error=0.2), groups=labels)
    error = np.linalg.norm(result.signed - truth) / np.linalg.norm(truth)
    assert error < 0.3
    coarse = explain_point(net, x, engine=Stein(error=0.4), groups=labels).settings["engine_settings"]
    assert result.settings["engine_settings"].startswith("Stein(noise=0.25, samples=")
    assert _samples(coarse) <= _samples(result.settings["engine_settings"])


def _samples(settings: str) -> int:
    return int(settings.split("samples=")[1].rstrip(")"))


def test_batch_sizes_change_neither_the_number_of_samples_nor_the_result():
    x, net = random_points(120, 5), relu_network(5)
    expected = explain_point(net, x, engine="stein", groups=3)
    for size in (1, 50):
        found = explain_point(net, x, engine="stein", groups=3, batch_size=size)
        assert found.settings["engine_settings"] == expected.settings["engine_settings"]
        np.testing.assert_allclose(found.signed, expected.signed, atol=1e-10)
        np.testing.assert_allclose(found.noise, expected.noise, rtol=1e-6, atol=1e-10)


@pytest.mark.parametrize("controlled", [True, False])
def test_little_memory_splits_the_samples_of_a_point(controlled, request):
    if not controlled:
        request.getfixturevalue("no_control")
    x, net = random_points(12, 10), relu_network(10)
    options = {"engine": Stein(samples=100), "groups": 2}
    expected, found = (explain_point(net, x, memory=memory, **options) for memory in (None, 3e-4))
    assert found.settings["eah_points"] == 12
    for name in ("geh", "aeh", "eah"):
        np.testing.assert_allclose(found.scores(name).mean, expected.scores(name).mean, atol=1e-9)


def test_group_products_are_the_sums_over_points():
    x, net = random_points(150, 9), relu_network(9)
    options = {"engine": Stein(samples=10), "groups": 3}
    everywhere, some = (explain_point(net, x, eah_points=count, **options) for count in (150, 60))
    assert (everywhere.settings["eah_points"], some.settings["eah_points"]) == (150, 60)
    np.testing.assert_allclose(some.signed, everywhere.signed, atol=1e-10)
    # Pairs of samples instead of all of them give the variance with fewer degrees of freedom.
    assert (some.noise / everywhere.noise).mean() == pytest.approx(1, abs=0.03)
    with pytest.warns(geh.GEHWarning, match="60 of 150 points"):
        np.testing.assert_allclose(some.eah.mean, everywhere.eah.mean, atol=0.3 * everywhere.eah.mean.max())


def test_noise_that_exceeds_the_interactions_is_a_warning_that_says_how_many_samples_do():
    x, net = random_points(6, 40), relu_network(40)
    labels = np.arange(6)
    with pytest.warns(geh.GEHWarning, match=r"times as large as the interactions.*use about Stein\(samples=") as caught:
        explain_point(net, x, engine=Stein(samples=2), groups=labels)
    advised = _samples(str(caught[0].message).split(", or use")[0])
    truth = explain_point(net, x, engine=Stein(samples=10_000), groups=labels, seed=5).signed
    # The advice is an estimate from two samples of each point.
    result = explain_point(net, x, engine=Stein(samples=advised), groups=labels)
    assert np.linalg.norm(result.signed - truth) / np.linalg.norm(truth) < 0.6


def test_a_warning_says_that_nothing_is_seen_but_noise(no_control):
    x = random_points(40, 6)
    messages = []
    for seed in range(8):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            explain_point(lambda x: x.pow(2).sum(1), x, engine=Stein(samples=4), groups=np.arange(40) % 20, seed=seed)
        messages += [str(message.message) for message in caught]
    # The estimate of the interactions is 0 on average, and below it in about half of the runs.
    assert len(messages) == 8
    assert 1 <= sum("no interactions can be told from the noise" in message for message in messages) <= 7
    assert all("engine='stein'" in message for message in messages)


@pytest.mark.parametrize(("memory", "kept"), [(None, True), (6e-4, False)])
def test_moments_instead_of_draws_have_the_same_warning(memory, kept):
    x, net = random_points(12, 60), relu_network(60)
    with pytest.warns(geh.GEHWarning, match="times as large as the interactions"):
        result = explain_point(net, x, engine=Stein(samples=2), groups=np.arange(12), memory=memory)
    assert result.settings["draws_kept"] == kept


@pytest.fixture(scope="module")
def digits() -> tuple[nn.Module, Tensor]:
    """A ReLU network trained on images of 64 pixels, and some of them."""
    data = load_digits()
    x, y = torch.as_tensor(data.data / 16), torch.as_tensor(data.target)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)).double()
    optimiser = torch.optim.Adam(net.parameters(), 2e-3)
    for _ in range(25):
        for batch in torch.randperm(len(x)).split(128):
            optimiser.zero_grad()
            nn.functional.cross_entropy(net(x[batch]), y[batch]).backward()
            optimiser.step()
    return net, x[::90]


@pytest.mark.parametrize("engine", [Stein(), Stein(samples=4), Stein(radius=0.5), Stein(sigma=0.05)], ids=repr)
def test_on_images_the_hessian_is_never_silently_worse_than_none(digits, engine):
    """Second-order Taylor expansion on a ball, with and without the interactions of the engine."""
    net, x = digits
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = explain_point(net, x, target=3, engine=engine, groups=np.arange(len(x)))
    hessians = torch.zeros(len(x), 64, 64).double()
    first, second = np.triu_indices(64, 1)
    hessians[:, first, second] = hessians[:, second, first] = torch.as_tensor(result.signed[0])
    shifts = random_points(200, len(x), 64, seed=3)
    shifts *= 0.5 / shifts.norm(dim=2, keepdim=True)
    points = x.clone().requires_grad_()
    value = net(points)[:, 3]
    (slopes,) = torch.autograd.grad(value.sum(), points)
    with torch.no_grad():
        change = net(x + shifts)[..., 3] - value - (shifts * slopes).sum(2)
    second_order = torch.einsum("kni,nij,knj->kn", shifts, hessians, shifts) / 2
    # The diagonal is no interaction: its part is the same for all directions, up to a few per cent.
    change, second_order = (values - values.mean(dim=0) for values in (change, second_order))
    better = (change - second_order).square().mean() < change.square().mean()
    warned = any("engine='stein'" in str(message.message) and "noise" in str(message.message) for message in caught)
    assert better or warned
    if engine.radius is not None:
        assert better


def test_dropout_draws_have_their_own_noise_and_one_number_of_samples():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 16), nn.Dropout(0.2), nn.ReLU(), nn.Linear(16, 1)).double()
    x = random_points(80, 4)
    options = {"posterior": geh.posterior.MCDropout(), "engine": geh.engines.Stein(samples=8)}
    explainer = geh.GEHExplainer(net, **options)
    result = explainer.explain(x, groups=2, draws=5, progress=False)
    exact = geh.GEHExplainer(net, posterior=geh.posterior.MCDropout(), engine=Stein(samples=800))
    expected = exact.explain(x, groups=2, draws=5, progress=False)
    scores = (result.signed - expected.signed) / np.hypot(result.noise, expected.noise)
    assert (scores**2).mean() == pytest.approx(1, abs=0.6)
    assert explain_point_quietly(net, x, engine=Stein(samples=8)).noise.shape == (1, 1, 6)


def test_noise_that_rounding_swallows_is_a_warning():
    x = random_points(30, 3).float()
    far = x + torch.tensor([0.0, 1e7, 0.0])
    model = lambda x: torch.tanh(x[:, 0] + (x[:, 1] - 1e7) + x[:, 2])  # noqa: E731
    with pytest.warns(geh.GEHWarning, match="of x1 in torch.float32, so that their interactions are wrong"):
        explain_point(model, far, engine=Stein(sigma=0.3, samples=8), groups=1)
    with pytest.warns(geh.GEHWarning, match="of x0, x1, x2 in torch.float32"):
        explain_point(torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1)), x,
                      engine=Stein(sigma=1e-8, samples=8), groups=1)  # fmt: skip


def test_estimates_beyond_the_range_of_a_dtype_are_refused():
    x = random_points(30, 3).float()
    with pytest.raises(geh.GEHError, match=r"sigma=1e-20.*exceed the range of torch.float32; use a larger scale"):
        explain_point(relu_network(3).float(), x, engine=Stein(sigma=1e-20, samples=8), groups=1)


def test_zeros_of_noise_that_crosses_no_kink_are_explained():
    x = random_points(30, 3)
    with pytest.warns(geh.GEHWarning, match=r"the noise of Stein\(sigma=1e-06, samples=8\).*use a larger scale"):
        explain_point(relu_network(3), x, engine=Stein(sigma=1e-6, samples=8), groups=1)
