"""The paper's experiments and their pages; run them from a clone with ``python -m studies NAME``.

The folder is not part of the installed package. Each study has the same modules: ``experiment`` (one unit of work, as a
function that returns a JSON record), ``summary`` (records to tables), ``figures`` and ``page``.
"""
