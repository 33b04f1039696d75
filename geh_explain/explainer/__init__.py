"""GEHExplainer: wraps a trained network and answers questions about its pairs of units.

The class wires the folders of the package together and holds no maths: each method reads its data, makes a plan, and
calls the function that does the work.

``base``
    The arguments of an explainer, and checks that its methods share.
``explaining``
    Explanations, what they cost, and the number of groups.
``several_targets``, ``finished_run``
    Explanations of several targets, and the result of a run.
``searching``
    The strongest pairs among very many units.
``testing``
    Tests on held-out labels.
``one_row``
    Accounts of single predictions.
``analysing``
    Screening, diagnosis, ablation, sharpness, surfaces.
``interpreting``
    Images of units.
``measuring``
    The share of interactions, and triples of units.
``model_explainer``
    The class, which inherits all of these.
"""

from geh_explain.explainer.model_explainer import GEHExplainer as GEHExplainer
