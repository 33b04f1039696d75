"""GEHExplainer, the class that users construct."""

from __future__ import annotations

from geh_explain.explainer.analysing import Analysing
from geh_explain.explainer.interpreting import Interpreting
from geh_explain.explainer.measuring import Measuring
from geh_explain.explainer.one_row import RowExplaining
from geh_explain.explainer.searching import Searching
from geh_explain.explainer.testing import HeldOutTesting


class GEHExplainer(Searching, Analysing, Interpreting, HeldOutTesting, Measuring, RowExplaining):
    """Finds which pairs of inputs, or of hidden units, interact in a trained network.

    The local interaction of units i and j at a point x is H_ij(x) = d2 f / du_i du_j, for one scalar output f of the
    network. :meth:`explain` averages it over groups of points and over draws of a posterior::

        GEH_ij = sum over groups m of (n_m / N) |mean over x in group m of H_ij(x)|.

    Parameters
    ----------
    model
        Any ``nn.Module``; a plain callable is enough for the inputs, and so is a fitted estimator with ``predict`` or
        ``predict_proba``, of scikit-learn for instance; a net of skorch is its network. Its parameters, buffers, modes,
        hooks and whatever else it holds are the same after each call. Networks inside a callable keep their modes.
    layer
        None for the inputs, else a dotted name (``"layer3.1.conv2"``) or a module, whose output's units are explained;
        :class:`~geh_explain.Layer` for a layer that returns several tensors, or is called several times.
    units
        What one unit is, from :mod:`geh_explain.units`. None: features of the inputs, neurons, or channels of feature
        maps.
    output
        ``"raw"``, ``"probability"`` (sigmoid for one column, softmax for more) or a callable that turns the model's
        return value into a tensor.
    posterior
        Source of the uncertainty, from :mod:`geh_explain.posterior`. None: MC dropout if the model has dropout, else
        the point estimate, with a warning.
    smooth
        Kinked functions (ReLU, max pooling, ...) have no second derivative; during an explanation they are replaced by
        smooth ones. :class:`geh_explain.engines.Step` chooses the sharpness such that scores agree with mixed
        differences of the network itself at this step; ``"auto"`` is a step of 0.75 standard deviations, or sharper.
        :class:`geh_explain.engines.Radius` smooths each row by itself within a ball around it. A float is the beta of
        the softplus that replaces ReLU, None replaces nothing.
    engine
        How local interactions are computed: ``"structured"`` (fast, for networks of linear maps and elementwise
        functions), ``"exact"`` (two backward passes), ``"difference"`` (mixed differences, for black boxes and discrete
        inputs), ``"stein"`` (gradients under noise), an instance of one of these from :mod:`geh_explain.engines`, or
        ``"auto"``: structured, exact or difference, the first one that the model allows.

    Examples
    --------
    >>> import torch, geh_explain as geh
    >>> from torch import nn
    >>> net = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Dropout(0.1), nn.Linear(32, 1))
    >>> explainer = geh.GEHExplainer(net)
    >>> explainer
    GEHExplainer(Sequential, the inputs)
    >>> result = explainer.explain(torch.randn(100, 4), groups=3, draws=50, progress=False)
    >>> list(result.top(2).columns[:3])
    ['unit_i', 'unit_j', 'mean']
    """
