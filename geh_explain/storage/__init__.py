"""Files that are written whole or not at all, folders that one process uses at a time, archives that may be forged.

``whole``
    Writing of a user's file: a temporary file replaces it at the end, or nothing changes.
``lock``
    Exclusive use of a checkpoint folder.
``archives``
    Checks of ``.npz`` archives before they are unpacked.
"""
