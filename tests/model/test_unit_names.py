"""Names of units: the columns of a table for inputs, and the layer with an index for hidden units."""

import numpy as np
import pandas as pd
from explaining import explain_point
from torch import nn


def test_columns_of_a_table_name_inputs_and_not_hidden_units():
    net = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 2), nn.Tanh(), nn.Linear(2, 1), nn.Sigmoid())
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(30, 3)), columns=["a", "b", "c"])
    names = [explain_point(net, frame, layer=layer).names for layer in (None, "1", "3")]
    assert names == [["a", "b", "c"], ["1[0]", "1[1]", "1[2]"], ["3[0]", "3[1]"]]
