"""Ctrl-C stops a long solve, its threads included, and the next solve works."""

import os
import subprocess
import sys

import pytest

# Low rank and large: many long searches, ten seconds of work and more.
PROGRAM = """
import os, signal, sys, threading, time, torch, directloss as dl
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background starts with it ignored
threads, batch, n = map(int, sys.argv[1:])
dl.set_num_threads(threads)
small = torch.rand(1, 20, 20)
before = dl.Matching().solve(small)  # compiled
scores = torch.randn(batch, n, 4) @ torch.randn(4, n)

def interrupt():
    global interrupted
    start = time.process_time()
    while time.process_time() < start + 0.3:  # of work, however busy the machine is
        time.sleep(0.01)
    interrupted = time.process_time()
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=interrupt, daemon=True).start()
try:
    dl.Matching().solve(scores)
except KeyboardInterrupt:
    start = time.process_time()
    print("soon" if start - interrupted < 2 else f"after {start - interrupted} s of work")
    time.sleep(1)
    print("busy" if time.process_time() - start > 0.5 else "idle")
    print("same" if torch.equal(dl.Matching().solve(small), before) else "different")
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGINT for one process")
@pytest.mark.parametrize(("threads", "batch", "n"), [(1, 1, 6000), (2, 20, 2000)])
def test_ctrl_c_stops_a_long_solve(threads, batch, n):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(threads), str(batch), str(n)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=300,  # generous, for a busy machine
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "soon\nidle\nsame\n", "")
