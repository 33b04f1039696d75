"""Other threads and forked processes while one thread explains."""

import os
import random
import signal
import threading
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from drawing_threads import EXPLANATIONS, Augmented, count_repeated, drawing, repeating, scaled_weights
from interrupted_runs import network, rows
from torch import nn
from torch.utils.data import DataLoader

import geh_explain as geh
from geh_explain._process import torch_generator
from geh_explain.data.points import Points
from geh_explain.posterior import PointEstimate

pytestmark = pytest.mark.usefixtures("seeded")


@pytest.mark.parametrize("kind", EXPLANATIONS)
def test_random_numbers_of_another_thread_do_not_repeat(kind):
    n_drawn, repeated = count_repeated(EXPLANATIONS[kind](), n_calls=2)
    assert n_drawn > 9
    assert repeated == {"torch": 0, "numpy": 0, "python": 0}


def test_torch_numbers_of_another_thread_do_not_repeat_while_a_loader_is_read():
    loader = DataLoader(Augmented(rows(60)), batch_size=8, shuffle=True)
    explainer = geh.GEHExplainer(network())
    n_drawn, repeated = count_repeated(lambda: explainer.explain(loader, groups=2, draws=3, progress=False), n_calls=2)
    assert n_drawn > 9
    assert repeated["torch"] == 0


def global_states():
    return (
        torch.get_rng_state().tolist(),
        np.random.get_state()[1].tolist(),
        np.random.get_state()[2],
        random.getstate(),
    )


def test_a_model_that_draws_random_numbers_leaves_the_global_generators_as_they_were():
    before = global_states()
    geh.GEHExplainer(drawing, posterior=PointEstimate()).explain(rows(20), groups=1, progress=False)
    assert global_states() == before


def drawing_in_large_batches(x):
    return drawing(x) if len(x) > 8 else x.prod(1)


def seeding(x):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return x.prod(1) * torch.rand(())


def reseeding(x):
    torch.manual_seed(1)
    np.random.seed(1)
    random.seed(1)
    return x.prod(1) * (torch.rand(()) + np.random.rand() + random.random())


@pytest.mark.parametrize("function", [drawing_in_large_batches, seeding, reseeding])
def test_so_does_one_that_draws_in_large_batches_only_or_seeds_the_generators(function):
    before = global_states()
    result = geh.GEHExplainer(function, posterior=PointEstimate()).explain(rows(20), groups=1, progress=False)
    assert result.geh.mean.any()
    assert global_states() == before


def read_by_fit(net, loader):
    geh.bnn.fit(net, loader, rows().sum(1), epochs=1, progress=False)


def read_by_baseline(net, loader):
    geh.baselines.lasso(loader, rows().sum(1))


def read_by_conversion(net, loader):
    geh.bnn.to_concrete(nn.Sequential(nn.Dropout(0.2), net[0]), loader)


def read_by_explain(net, loader):
    geh.GEHExplainer(net, posterior=PointEstimate()).explain(loader, groups=1, progress=False)


@pytest.mark.parametrize("read", [read_by_fit, read_by_baseline, read_by_conversion, read_by_explain])
def test_whoever_reads_a_loader_leaves_the_global_generators_as_they_were(read):
    net = network(drop=0)
    before = global_states()
    read(net, DataLoader(Augmented(rows()), batch_size=64, shuffle=True))
    assert global_states() == before


@torch.no_grad()
def step(net, factor=0.9999):
    """Change the weights as an optimiser does."""
    for parameter in net.parameters():
        parameter.mul_(factor)


def test_a_model_that_another_thread_trains_is_refused():
    net = network()
    explainer = geh.GEHExplainer(net, engine="difference", posterior=PointEstimate())
    # Checks of the model may notice it first.
    refused = pytest.raises(
        geh.GEHError, match=r"parameter '.*' was written to while it was explained|not one function"
    )
    with repeating(lambda: step(net)), refused:
        explainer.explain(rows(2000), groups=1, batch_size=50, progress=False)


def test_a_parameter_that_is_written_to_within_a_draw_is_named():
    net, calls = network(), []

    def output(out):
        calls.append(len(out))
        if len(calls) == 20:  # between two forward passes of a draw
            with torch.no_grad():
                net[3].weight.add_(1e-3)
        return out

    explainer = geh.GEHExplainer(net, output=output, engine="difference", posterior=scaled_weights(net))
    with pytest.raises(geh.GEHError, match=r"parameter '3.weight' was written to while it was explained.*deepcopy"):
        explainer.explain(rows(400), groups=2, batch_size=20, progress=False)


def test_a_parameter_that_another_thread_writes_to_is_never_taken_for_a_model_that_mixes_rows():
    messages = []
    for call in range(1, 10):
        net, calls = network(), []

        def output(out, net=net, calls=calls, call=call):
            calls.append(len(out))
            if len(calls) == call:
                thread = threading.Thread(target=step, args=(net, 2.0))
                thread.start()
                thread.join()
            return out

        explainer = geh.GEHExplainer(net, output=output, engine="difference", posterior=PointEstimate())
        try:
            explainer.explain(rows(40), groups=2, progress=False)
        except geh.GEHError as error:
            messages.append(str(error))
    assert messages
    assert all("was written to while it was explained" in message for message in messages), messages


@pytest.mark.parametrize("posterior", [PointEstimate(), None], ids=["point", "dropout"])
@pytest.mark.parametrize(("engine", "call"), [("structured", 7), ("structured", 11), ("exact", 4), ("exact", 9)])
def test_a_parameter_that_is_written_to_between_forward_and_backward_is_named(call, engine, posterior):
    net, calls = network(), []

    def output(out):
        calls.append(torch.is_grad_enabled() and out.requires_grad)
        if sum(calls) == call and calls[-1]:
            with torch.no_grad():
                net[3].weight.add_(1e-3)
        return out.square()

    explainer = geh.GEHExplainer(net, output=output, engine=engine, posterior=posterior)
    with pytest.raises(geh.GEHError, match=r"parameter '3.weight' was written to while it was explained"):
        explainer.explain(rows(400), groups=2, draws=3, batch_size=20, progress=False)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows has no fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_process_that_is_forked_while_a_thread_explains_can_explain():
    inside, done = threading.Event(), threading.Event()

    def waiting(x):
        inside.set()
        done.wait()
        return x.prod(1)

    explainer = geh.GEHExplainer(waiting, posterior=PointEstimate())
    thread = threading.Thread(target=lambda: explainer.explain(rows(9), groups=1, progress=False))
    thread.start()
    inside.wait()
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        other = geh.GEHExplainer(lambda x: x.prod(1), posterior=PointEstimate())
        os._exit(0 if other.explain(rows(9), groups=1, progress=False).geh.mean.any() else 1)
    done.set()
    thread.join()
    assert os.waitpid(child, 0)[1] == 0


@contextmanager
def held_by_another_thread(context):
    """Hold a context in another thread."""
    inside, done = threading.Event(), threading.Event()

    def hold():
        with context:
            inside.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    inside.wait()
    yield
    done.set()
    thread.join()


#: Locks of which the process has one.
LOCKS = {
    "numpy": np.random.mtrand._rand._bit_generator.lock,
    "router": torch_generator._ROUTER_LOCK,
    "cached property": vars(Points)["first"].lock,
}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows has no fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("name", LOCKS)
def test_a_forked_process_does_not_wait_for_locks_of_other_threads(name):
    with held_by_another_thread(LOCKS[name]):
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            explainer = geh.GEHExplainer(network())
            os._exit(0 if explainer.explain(rows(9), groups=1, draws=2, progress=False).geh.mean.any() else 1)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows has no fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_process_that_a_thread_forks_while_the_main_thread_explains_has_the_users_handler():
    codes = []

    def fork():
        child = os.fork()
        if child == 0:
            os._exit(0 if signal.getsignal(signal.SIGINT) is signal.default_int_handler else 1)
        codes.append(os.waitpid(child, 0)[1])

    def forking(x):
        if not codes:
            thread = threading.Thread(target=fork)
            thread.start()
            thread.join()
        return x.prod(1)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        geh.GEHExplainer(forking, posterior=PointEstimate()).explain(rows(9), groups=1, progress=False)
    finally:
        signal.signal(signal.SIGINT, before)
    assert codes == [0]


def test_two_threads_that_explain_one_model_get_the_same_scores():
    net, results = network(), []

    def explain():
        results.append(geh.GEHExplainer(net).explain(rows(60), groups=2, draws=3, progress=False).signed)

    threads = [threading.Thread(target=explain) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 3
    assert all(np.array_equal(result, results[0]) for result in results)


def test_stochastic_models_keep_the_generators_between_forward_passes():
    def noisy(x):
        return x.prod(1) * torch.normal(2.0, 0.1, ())

    before = global_states()
    geh.GEHExplainer(noisy, posterior=geh.posterior.Stochastic()).explain(rows(20), groups=1, draws=9, progress=False)
    assert global_states() == before
