"""Ranks that read rows of their own return the result of all rows."""

import pytest
import torch
from ranks import torchrun

import geh_explain as geh
from geh_explain.data.forward_args import ForwardArgs
from geh_explain.data.points import InMemoryPoints
from geh_explain.data.rows import Rows
from geh_explain.data.shards import Shard, ShardedPoints
from geh_explain.run.distributed import RankGroup

EQUAL = """
import numpy as np
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset
import geh_explain.data.reader, geh_explain.run.shards
one = geh.posterior.PointEstimate()
cases = {
    "the number of groups is chosen": ({}, {"draws": 23}),
    "a posterior of its own": ({"posterior": OneAfterTheOther()}, {"draws": 5, "groups": 3, "scale": "std"}),
    "one group": ({"posterior": one}, {"draws": 1, "groups": 1}),
    "a sample of the points for EAH": ({"posterior": one, "engine": "stein"}, {"draws": 1, "groups": 2}),
    "a hidden layer": ({"layer": "1"}, {"draws": 2, "groups": 2}),
    "differences": ({"engine": "difference", "posterior": one}, {"draws": 1, "groups": 2}),
}
x = rows(301)
bounds = [0, 40, 301] if int(os.environ["WORLD_SIZE"]) == 2 else [0, 40, 41, 301]
own = x[bounds[rank] : bounds[rank + 1]]
for number, (case, (made, asked)) in enumerate(cases.items()):
    explainer = geh.GEHExplainer(network(), **made)
    geh_explain.data.reader.KEEP_SHARE = 0 if number % 2 else 0.25
    inputs = DataLoader(TensorDataset(own), batch_size=30) if number % 2 else own
    shared = explainer.explain(inputs, progress=False, distributed="shards", **asked)
    everywhere = [None] * dist.get_world_size()
    dist.all_gather_object(everywhere, (shared.geh.draws.tolist(), shared.labels.tolist(), shared.settings))
    assert all(found == everywhere[0] for found in everywhere), case
    if rank == 0:
        alone = explainer.explain(x, progress=False, distributed=False, **asked)
        np.testing.assert_array_equal(shared.labels, alone.labels)
        assert shared.settings["points"] == 301
        for measure in ("geh", "aeh", "eah"):
            a, b = (result.scores(measure).draws for result in (shared, alone))
            np.testing.assert_allclose(a, b, rtol=0, atol=1e-5 * abs(b).max(), err_msg=case)
        if shared.point_errors is not None:
            a, b = shared.point_errors, alone.point_errors
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5 * abs(b).max(), err_msg=case)
        assert [str(text) for text in shared.group_descriptions] == [str(text) for text in alone.group_descriptions]
        print("equal:", case, flush=True)

# A plan from a sample of 150 of the rows, whose groups hold all of them.
geh_explain.run.shards.MAX_POINTS = 150
explainer = geh.GEHExplainer(network(), posterior=one)
found = explainer.explain(x[bounds[rank] : bounds[rank + 1]], draws=1, groups=3, progress=False, distributed="shards")
again = explainer.explain(x, draws=1, groups=found.labels, progress=False, distributed=False)
np.testing.assert_allclose(found.geh.draws, again.geh.draws, rtol=0, atol=2e-2 * again.geh.draws.max())
sys.stdout.write(f"sampled {found.n_points} {found.sizes.sum()}\\n")
"""


@pytest.mark.parametrize("processes", [2, 3])
def test_the_result_of_shards_is_that_of_all_rows(processes, tmp_path):
    done = torchrun(EQUAL, tmp_path, processes)
    assert done.stdout.count("equal:") == 6
    assert done.stdout.count("sampled 301 301") == processes


REFUSED = """
def told(inputs, made=None, **options):
    try:
        options = {"draws": 2, "groups": 2, "progress": False, "distributed": "shards", **options}
        geh.GEHExplainer(network(), **(made or {})).explain(inputs, **options)
        sys.stdout.write("not refused\\n")
    except geh.GEHError as error:
        sys.stdout.write(f"{rank}: {error}\\n")

import pandas as pd
x = rows(40)
told(x[:, : 5 - rank])
told(pd.DataFrame(x.numpy(), columns=list("abcde" if rank else "abced")))
told(x[:0] if rank else x)
told(x, sample_weight=torch.ones(40))
told(x, groups=[0, 1] * 20)
told(x, targets=[0])
told(x, target=[0] * 40)
told(x, rows="auto")

class Broken(torch.utils.data.IterableDataset):
    def __iter__(self):
        yield x[0]
        raise OSError("no such part")

try:
    told(Broken() if rank else x)
except OSError as error:
    sys.stdout.write(f"{rank}: {error}\\n")
"""


def test_shards_that_do_not_fit_together_are_refused_on_all_ranks(tmp_path):
    told = torchrun(REFUSED, tmp_path).stdout
    assert "not refused" not in told
    for rank in (0, 1):
        assert f"{rank}: inputs: rank 1 has rows of shape (4,), and rank 0 has rows of shape (5,)" in told
        assert f"{rank}: inputs: rank 1 has columns named a and b and c and d and e, and rank 0 has columns" in told
        assert f"{rank}: sample_weight has one entry per row" in told
        assert f"{rank}: groups: with distributed='shards' groups are a number or 'auto'" in told
        assert f"{rank}: distributed='shards' explains one target" in told
        assert f"{rank}: search() and rows='auto' compare pairs over all rows" in told
    assert "0: inputs: rank 1 cannot read its shard (GEHValueError: inputs are empty" in told
    assert "1: inputs are empty" in told
    assert "0: inputs: rank 1 cannot read its shard (OSError: no such part)" in told
    assert "1: no such part" in told
    assert told.count("one entry per row, or a data frame has columns of text") == 2


def test_with_shards_all_ranks_share_each_draw_and_take_their_own_rows():
    ranks = RankGroup(1, 3, bounds=(0, 5, 8, 20))
    assert ranks.teams(100) == 1
    assert ranks.share(1, 20) == (0, slice(5, 8))


def test_the_rows_of_a_shard_have_indices_among_all_rows():
    own = InMemoryPoints(Rows((torch.arange(6.0).reshape(3, 2),), ForwardArgs.of(None, (), 3)))
    points = ShardedPoints(Shard(own, (0, 5, 8), rank=1), own, torch.arange(3).numpy(), ["a", "b"])
    assert len(points) == 8
    assert [(rows.start, len(rows)) for rows in points.split(2)] == [(5, 2), (7, 1)]
    other = ShardedPoints(Shard(own, (0, 5, 8), rank=1), own, torch.arange(3).numpy(), ["a", "c"])
    assert points.digest() != other.digest()


def test_one_process_alone_has_all_rows():
    explainer, x = geh.GEHExplainer(lambda x: x.prod(1), posterior=geh.posterior.PointEstimate()), torch.rand(20, 3)
    alone, shards = (explainer.explain(x, groups=2, progress=False, distributed=how) for how in (False, "shards"))
    assert (alone.geh.mean == shards.geh.mean)[~torch.eye(3, dtype=torch.bool).numpy()].all()


def test_another_word_is_refused():
    with pytest.raises(geh.GEHError, match=r"distributed='shard' must be None, True, False or 'shards'"):
        geh.GEHExplainer(lambda x: x.prod(1)).explain(torch.rand(4, 3), distributed="shard")
