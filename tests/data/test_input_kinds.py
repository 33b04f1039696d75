"""Scores for every kind of input, argument and target, compared with the plain reference."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from explaining import explain_point, random_points, uniform_points
from networks import mlp
from reference import local_hessians
from reference_scores import CLOSE, assert_scores
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, TensorDataset

import geh_explain as geh

# Inputs, additional arguments and targets.


def test_a_tuple_of_inputs_is_one_row_of_columns_side_by_side() -> None:
    net, x = mlp(5, 8, 1, gain=2.0), random_points(12, 5)

    def two_inputs(left: Tensor, right: Tensor) -> Tensor:
        return net(torch.cat([left, right.flatten(1)], dim=1))

    local = local_hessians(lambda x: net(x)[:, 0], x)
    assert_scores(explain_point(two_inputs, (x[:, :1], x[:, 1:]), groups=3), local)
    assert_scores(explain_point(two_inputs, (x[:, :1], x[:, 1:].reshape(12, 2, 2)), groups=[0, 1] * 6), local)


@pytest.mark.parametrize("batch_size", [None, 5])
def test_additional_arguments_reach_the_model_row_by_row(batch_size: int | None) -> None:
    weights, shift = random_points(12, 3, seed=1), 0.5

    def model(x: Tensor, weights: Tensor, shift: float, word: str) -> Tensor:
        assert word == "hello"
        return ((weights * x).sum(dim=1) + shift) ** 3

    x = random_points(12, 3)
    local = local_hessians(lambda x: model(x, weights, shift, "hello"), x)
    assert_scores(explain_point(model, x, None, (weights, shift, "hello"), batch_size=batch_size, groups=3), local)


@pytest.mark.parametrize("size", [3, 8])
def test_additional_arguments_that_do_not_belong_to_rows_are_not_sliced(size: int) -> None:
    # Eight is critical: checks of the model use the first eight rows.
    weights = torch.arange(1.0, size + 1, dtype=torch.double)
    result = explain_point(lambda x, weights: (x @ weights) ** 2 / 2, random_points(20, size), None, weights, groups=3)
    expected = np.outer(weights, weights) - np.diag(weights**2)
    np.testing.assert_allclose(result.geh.mean, expected, rtol=1e-12)


def test_a_streamed_loader_does_not_slice_arguments_as_long_as_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("geh_explain.data.reader.KEEP_SHARE", 0)
    weights = torch.arange(1.0, 6.0, dtype=torch.double)
    loader = DataLoader(TensorDataset(random_points(20, 5)), batch_size=5)
    result = explain_point(lambda x, weights: (x @ weights) ** 2 / 2, loader, None, weights, batch_size=2, groups=3)
    np.testing.assert_allclose(result.geh.mean, np.outer(weights, weights) - np.diag(weights**2), rtol=1e-12)


@pytest.mark.parametrize("batch_size", [None, 5])
def test_each_row_may_have_its_own_target(batch_size: int | None) -> None:
    net, x = mlp(4, 8, 3, gain=2.0), random_points(12, 4)
    target = torch.arange(12) % 3
    local = local_hessians(lambda x: net(x)[torch.arange(12), target], x)
    for form in (target, target.tolist(), target.numpy()):
        assert_scores(explain_point(net, x, form, batch_size=batch_size, groups=3), local)


def test_one_target_picks_one_output() -> None:
    net, x = mlp(4, 8, 3, gain=2.0), random_points(12, 4)
    local = local_hessians(lambda x: net(x)[:, 2], x)
    for form in (2, -1, (2,), torch.tensor(2), np.int64(2)):
        assert_scores(explain_point(net, x, form, groups=3), local)


def test_a_tuple_picks_one_of_many_outputs_per_row() -> None:
    net, x = mlp(4, 8, 6, gain=2.0), random_points(12, 4)
    model = lambda x: net(x).reshape(-1, 2, 3)  # noqa: E731
    assert_scores(explain_point(model, x, (1, 2), groups=3), local_hessians(lambda x: net(x)[:, 5], x))
    per_row = [(row % 2, row % 3) for row in range(12)]
    picked = torch.tensor([3 * first + second for first, second in per_row])
    local = local_hessians(lambda x: net(x)[torch.arange(12), picked], x)
    assert_scores(explain_point(model, x, per_row, batch_size=5, groups=3), local)
    assert_scores(explain_point(model, x, torch.tensor(per_row), groups=3), local)


# Kinds of inputs.


class LabelledRows(Dataset):
    """A map-style data set of rows with labels."""

    def __init__(self, x: Tensor) -> None:
        self.x = x

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, row: int) -> tuple[Tensor, int]:
        return self.x[row], row


KINDS: dict[str, Callable[[Tensor], Any]] = {
    "DataFrame": lambda x: pd.DataFrame(x.numpy(), columns=[f"x{i}" for i in range(x.shape[1])]),
    "ndarray": lambda x: x.numpy(),
    "tuple of one tensor": lambda x: (x,),
    "TensorDataset": lambda x: TensorDataset(x, torch.arange(len(x))),
    "Dataset": LabelledRows,
    "DataLoader": lambda x: DataLoader(TensorDataset(x, torch.arange(len(x))), batch_size=7),
    "DataLoader of bare tensors": lambda x: DataLoader(list(x), batch_size=7),
}


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_input_gives_the_answer_of_a_tensor(
    kind: str, streamed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    net, x = mlp(4, 8, 1, gain=2.0), random_points(20, 4)
    expected = explain_point(net, x, groups=3)
    if streamed:
        monkeypatch.setattr("geh_explain.data.reader.KEEP_SHARE", 0)
    result = explain_point(net, KINDS[kind](x), groups=3)
    assert result.names == expected.names
    np.testing.assert_array_equal(result.labels, expected.labels)
    np.testing.assert_allclose(result.signed, expected.signed, rtol=0, atol=CLOSE)
    np.testing.assert_allclose(result.absolute, expected.absolute, rtol=0, atol=CLOSE)


def test_a_data_frame_of_whole_numbers_names_its_columns() -> None:
    frame = pd.DataFrame({"rooms": [1, 2, 3, 4], "people": [2.0, 1.0, 5.0, 3.0], "rich": [True, False, True, False]})
    with pytest.warns(geh.GEHWarning, match="column rich holds 0 and 1 only"):
        result = explain_point(lambda x: x[:, 0] ** 2 * x[:, 1] * x[:, 2], frame, groups=1)
    assert result.names == ["rooms", "people", "rich"]
    # Means over the four rows of 2 rooms rich, 2 rooms people, and rooms^2.
    by_hand = [(2 + 0 + 6 + 0) / 4, (4 + 4 + 30 + 24) / 4, (1 + 4 + 9 + 16) / 4]
    np.testing.assert_allclose(result.geh.draws[0], by_hand, rtol=1e-12)


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("own_generator", [False, True])
def test_a_shuffling_loader_gives_the_answer_of_a_tensor(
    own_generator: bool, streamed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    net, x = mlp(4, 8, 1, gain=2.0), random_points(20, 4)
    expected = explain_point(net, x, groups=3)
    if streamed:
        monkeypatch.setattr("geh_explain.data.reader.KEEP_SHARE", 0)
    generator = torch.Generator().manual_seed(3) if own_generator else None
    before = None if generator is None else generator.get_state()
    result = explain_point(net, DataLoader(TensorDataset(x), batch_size=6, shuffle=True, generator=generator), groups=3)
    for name in ("aeh", "geh", "eah"):
        np.testing.assert_allclose(getattr(result, name).mean, getattr(expected, name).mean, rtol=0, atol=CLOSE)
    assert generator is None or torch.equal(generator.get_state(), before)


def test_a_streamed_loader_cuts_targets_and_arguments_with_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    net, x, weights = mlp(4, 8, 3, gain=2.0), random_points(20, 4), random_points(20, 4, seed=1)
    target = torch.arange(20) % 3
    local = local_hessians(lambda x: net(x * weights)[torch.arange(20), target], x)
    monkeypatch.setattr("geh_explain.data.reader.KEEP_SHARE", 0)
    loader = DataLoader(TensorDataset(x), batch_size=6)
    for batch_size in (None, 4):
        result = explain_point(
            lambda x, weights: net(x * weights), loader, target, weights, batch_size=batch_size, groups=3
        )
        assert_scores(result, local)


@pytest.mark.parametrize("what", ["groups", "target", "additional_forward_args"])
def test_a_shuffling_loader_matches_per_row_arguments_with_their_rows(what: str) -> None:
    net, x = mlp(4, 8, 2, gain=2.0), random_points(20, 4)
    model = lambda x, sign=1.0: net(x) * sign  # noqa: E731
    side = (x[:, 0] > 0).long()
    options: dict[str, Any] = {"target": 0, "groups": 1} | {
        "groups": {"groups": side.numpy()},
        "target": {"target": side},
        "additional_forward_args": {"args": (2.0 * side[:, None] - 1)},
    }[what]
    expected = explain_point(model, x, **options)
    result = explain_point(model, DataLoader(TensorDataset(x), batch_size=6, shuffle=True), **options)
    for name in ("aeh", "geh", "eah"):
        np.testing.assert_allclose(getattr(result, name).mean, getattr(expected, name).mean, rtol=0, atol=CLOSE)


def test_a_series_of_targets_is_one_per_row():
    def model(x: Tensor) -> Tensor:
        return torch.stack([x.prod(1), 2 * x.prod(1)], dim=1)

    x, target = uniform_points(10, 3), np.arange(10) % 2
    series = explain_point(model, x, target=pd.Series(target))
    assert np.array_equal(series.signed, explain_point(model, x, target=target).signed)
