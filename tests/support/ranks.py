"""Scripts that several processes run under torchrun."""

import os
import subprocess
import sys

from interrupted_runs import ROOT

#: Begin of each script.
SHARED = """
import os, sys, torch
sys.path[:0] = {paths!r}
from interrupted_runs import OneAfterTheOther, network, rows
import geh_explain as geh
torch.set_num_threads(1)
rank, folder = int(os.environ["RANK"]), {folder!r}
"""


def torchrun(code, tmp_path, processes=2, expect=0):
    """Run ``code`` on several processes; return what they printed. ``expect`` is 0 if all of them must succeed."""
    script = tmp_path / "script.py"
    paths = [str(ROOT), str(ROOT / "tests/support")]
    script.write_text(SHARED.format(paths=paths, folder=str(tmp_path / "run")) + code)
    command = [sys.executable, "-W", "ignore", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
    done = subprocess.run(
        [*command, str(processes), str(script)],
        env={**os.environ, "OMP_NUM_THREADS": "1", "TORCHELASTIC_ERROR_FILE": ""},
        **{"capture_output": True, "text": True, "timeout": 240, "check": False, "cwd": tmp_path},
    )
    assert (done.returncode == 0) == (expect == 0), done.stderr[-3000:]
    return done
