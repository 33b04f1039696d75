"""Digests of models, posteriors and data: equal for equal contents."""

import numpy as np
from interrupted_runs import ensemble, network

from geh_explain._hashing import digest


def test_a_digest_tells_contents_apart():
    net = network()
    assert digest(net) == digest(network()) != digest(network(seed=1))
    assert digest(network(drop=0.1)) != digest(network(drop=0.2))
    assert digest(ensemble()) == digest(ensemble())
    assert digest(lambda x: x) != digest(len)
    loop: list[object] = [1]
    loop.append(loop)
    assert digest(loop) == digest(loop)
    assert digest({"a": np.arange(3)}) != digest({"a": np.arange(3.0)})
