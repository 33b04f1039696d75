"""The account of one prediction: main effects and pairs that lead from a reference to the model's output.

``quadrature``
    The Gauss rule of the weight -ln s, by which derivatives along the path are integrated.
``baselines``
    The argument ``baseline``, and the data that it and smoothing refer to.
``text_columns``
    Codes of columns of text, which row and baseline share.
``unit_path``
    The model as a function of how far each unit has moved from the baseline to the row.
``smoothing``
    Smooth forms of kinked functions, as sharp as the account needs them.
``integrated_hessians``, ``differences``
    The two accounts: by second derivatives along the path, and by switching units.
``account``
    Mean and spread of an account over draws and baselines.
``computation``
    One row from start to end: smoothing, draws, warnings.
``explanation``, ``plotting``, ``files``
    What users hold: tables, text and plots, saved and loaded.
``hessians``, ``row_sharpness``, ``example_rows``
    For Captum: local Hessians that do not depend on the other rows of a batch, and accounts of a batch of examples.
"""
