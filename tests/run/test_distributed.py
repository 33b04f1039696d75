"""Several processes share one call: all return the result of a single process, and a lost process is an error."""

import numpy as np
import pytest
from ranks import torchrun

import geh_explain as geh
from geh_explain.run.distributed import RankGroup

EQUAL = """
import numpy as np
one = geh.posterior.PointEstimate()
cases = {
    "several draws at once": ({}, 300, {"draws": 31}),
    "one draw at a time": ({}, 301, {"draws": 7, "batch_size": 50, "groups": 3}),
    "a posterior of its own": ({"posterior": OneAfterTheOther()}, 301, {"draws": 25}),
    "one draw, many points": ({"posterior": one}, 301, {"draws": 1, "groups": 2}),
    "Stein's noise": ({"engine": "stein"}, 60, {"draws": 3, "groups": 2}),
    "a narrow first layer": ({"posterior": one, "layer": None}, 301, {"draws": 1, "groups": 2, "eah_points": 40}),
    "clusters and draws": ({}, 300, {"draws": 9, "groups": 2, "clusters": np.arange(300) % 17}),
    "clusters, one draw": ({"posterior": one}, 301, {"draws": 1, "clusters": np.arange(301) % 17}),
    "case weights": ({"posterior": one}, 301, {"draws": 1, "groups": 2, "sample_weight": np.arange(301) % 5}),
}
for case, (made, count, asked) in cases.items():
    explainer = geh.GEHExplainer(network(), **made)
    shared = explainer.explain(rows(count), progress=False, **asked)
    alone = explainer.explain(rows(count), progress=False, distributed=False, **asked)
    np.testing.assert_array_equal(shared.labels, alone.labels)
    for measure in ("geh", "aeh", "eah"):
        a, b = (result.scores(measure).draws for result in (shared, alone))
        assert a.shape == b.shape, case
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-6 * abs(b).max(), err_msg=case)
    np.testing.assert_allclose(shared.main.mean, alone.main.mean, rtol=1e-5, atol=1e-6)
    a, b = shared.point_errors, alone.point_errors
    np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5 * abs(b).max(), err_msg=case)
    if rank == 0:
        print("equal:", case)
"""


@pytest.mark.parametrize("processes", [2, 3])
def test_the_result_of_several_processes_is_that_of_one(processes, tmp_path):
    done = torchrun(EQUAL, tmp_path, processes)
    assert done.stdout.count("equal:") == 9


DIFFERENT = """
try:
    geh.GEHExplainer(network()).explain(rows(seed=rank), groups=2, draws=4, progress=False)
except geh.GEHError as error:
    sys.stdout.write(f"{error}\\n")
mine = geh.GEHExplainer(network()).explain(rows(seed=rank), groups=2, draws=4, progress=False, distributed=False)
sys.stdout.write(f"alone {mine.geh.n_draws}\\n")
"""


def test_ranks_with_different_data_are_refused_unless_each_is_alone(tmp_path):
    done = torchrun(DIFFERENT, tmp_path)
    assert "rank 1 was called with another inputs than rank 0" in done.stdout
    assert done.stdout.count("distributed=False") == 2
    assert done.stdout.count("alone 4") == 2


REFUSED = """
options = {"draws": 4, "groups": 2, "progress": False, "checkpoint": folder}
geh.GEHExplainer(network()).explain(rows(), **options)
try:
    geh.GEHExplainer(network()).explain(rows(), **options, seed=1)
except geh.GEHError as error:
    sys.stdout.write(f"{rank}: {error}\\n")
"""


def test_all_ranks_refuse_a_folder_of_another_run(tmp_path):
    told = torchrun(REFUSED, tmp_path).stdout
    assert "0: checkpoint=" in told
    assert "another seed (0 there, 1 here)" in told
    assert "1: rank 0 has refused the call" in told


DYING = """
import signal
class Dying(geh.posterior.MCDropout):
    def draws(self, model, n, seed):
        for number, draw in enumerate(super().draws(model, n, seed)):
            if number == 9 and rank == 1 and not os.path.exists(folder + "/died"):
                open(folder + "/died", "w").close()
                os.kill(os.getpid(), signal.SIGKILL)
            yield draw
    batched = None

Dying.__name__ = "Dying"
asked = {"draws": 20, "groups": 2, "batch_size": 50, "progress": False, "checkpoint": folder}
try:
    result = geh.GEHExplainer(network(), posterior=Dying()).explain(rows(), **asked)
except geh.GEHError as error:
    with open(folder + f"/error{rank}", "w") as file:
        file.write(str(error))
    raise
result.save(folder + f"/result{rank}.npz")
"""


def test_a_rank_that_dies_ends_the_run_and_the_checkpoint_goes_on(tmp_path):
    (tmp_path / "run").mkdir()
    done = torchrun(DYING, tmp_path, expect=1)
    kept = sorted(path.name for path in (tmp_path / "run").glob("draw_*.npz"))
    assert kept == [f"draw_{number:06d}.npz" for number in range(8)]
    told = tmp_path / "run" / "error0"
    if told.exists():  # unless torchrun was quicker to end it
        assert "another rank has died or cannot be reached" in told.read_text()
    assert "exitcode" in done.stderr or "Signal 9" in done.stderr
    torchrun(DYING, tmp_path)
    ours, theirs = (geh.Interactions.load(tmp_path / "run" / f"result{rank}.npz") for rank in (0, 1))
    np.testing.assert_array_equal(ours.geh.draws, theirs.geh.draws)
    from interrupted_runs import network, rows

    alone = geh.GEHExplainer(network()).explain(rows(), draws=20, groups=2, batch_size=50, progress=False)
    np.testing.assert_allclose(ours.geh.draws, alone.geh.draws, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 6, 8, 1000])
@pytest.mark.parametrize("draws", [1, 2, 3, 5, 7, 100])
def test_every_point_of_every_draw_of_a_round_is_somebodys_and_nobody_elses(size, draws):
    teams = RankGroup(0, size).teams(draws)
    assert 1 <= teams <= draws
    assert size % teams == 0
    covered = np.zeros((teams, 1003), dtype=int)
    for rank in range(size):
        team, part = RankGroup(rank, size).share(teams, 1003)
        covered[team, part] += 1
    assert (covered == 1).all()


def test_several_processes_must_be_there_if_they_are_asked_for():
    explainer = geh.GEHExplainer(lambda x: x[:, 0] * x[:, 1], posterior=geh.posterior.PointEstimate())
    data = np.random.default_rng(0).normal(size=(10, 2))
    with pytest.raises(geh.GEHError, match="there is one process; start several with torchrun"):
        explainer.explain(data, distributed=True, progress=False)
    with pytest.raises(geh.GEHError, match="distributed='yes' must be None, True, False or 'shards'"):
        explainer.explain(data, distributed="yes", progress=False)


REFUTED = """
import numpy as np
from geh_explain.engines.structured.engine import StructuredRun
found, expected = [], []
for posterior in (None, OneAfterTheOther()):
    explain = lambda engine: geh.GEHExplainer(network(), posterior=posterior, engine=engine).explain(
        rows(301), groups=2, draws=7, progress=False)
    expected.append(explain("exact"))
    compare = StructuredRun.compare
    StructuredRun.compare = lambda self, rows, local: setattr(self, "refuted", rank == 1)
    found.append(explain("auto"))
    StructuredRun.compare = compare
for a, b in zip(found, expected):
    assert a.settings["engine"] == "exact" and any("again" in text for text in a.settings["warnings"])
    np.testing.assert_array_equal(a.geh.draws, b.geh.draws)
if rank == 0:
    print("equal")
"""


def test_a_mismatch_on_one_process_lets_all_of_them_start_again(tmp_path):
    assert "equal" in torchrun(REFUTED, tmp_path).stdout
