"""A real rig of this machine's CPUs for tests in Python: started with a load that is said to be none, worked over REST, ended."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path

MUST_COME = 120
LANES = 3
# 77: what test runners take for "skipped".
SKIPPED = 77

KIT = """\
name = "tried"
target = "cpu"
check = ["test", "-s", "src/seconds"]
measure = ["sh", "measure.sh"]
timer = "reported"
editable = ["src/**"]
artefacts = ["src/seconds"]

[contract]
plan_percent = 50
gate_percent = 10
blocks_least = 3
blocks_most = 12
dev_run_max = "1 h"
"""
# The reported time is the file's, with a little luck in its last digits.
MEASURE = 'echo "$(cat src/seconds)$(($$ % 90 + 10))" >&3\n'


@contextmanager
def started(binary, kind):
    """A rig of a class of rigs in a folder of its own, both gone at the end."""
    base = "/var/tmp" if os.geteuid() == 0 else None
    folder = Path(tempfile.mkdtemp(prefix="thermite-python-", dir=base))
    folder.chmod(0o755)
    rig = kind(folder, binary)
    try:
        rig.start()
        yield rig
    finally:
        rig.end()
        shutil.rmtree(folder, ignore_errors=True)


class Rig:
    """A rig of this machine's CPUs whose load is said to be none."""

    def __init__(self, folder, binary):
        self.folder = folder
        self.binary = binary
        self.process = None

    def start(self):
        self.feed()
        self.lay_out()
        (self.folder / "locks").mkdir()
        environment = {
            **os.environ,
            "THERMITE_DATA": str(self.folder / "data"),
            "THERMITE_DEVICE_LOCKS": str(self.folder / "locks"),
            "THERMITE_PROC_ROOT": str(self.folder / "fed"),
            "THERMITE_UID_BASE": str(300_000 + os.getpid() % 100_000 * 1_000),
        }
        log = open(self.folder / "log", "wb")
        command = [self.binary, "serve", "--listen", "127.0.0.1:0"]
        self.process = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder
        )
        endpoint = self.folder / "data/endpoint.json"
        until("the rig listens", lambda: endpoint.exists() or self.process.poll() is not None)
        if self.process.poll() is not None:
            said = (self.folder / "log").read_text()
            if "no isolation for a run here" in said:
                print(f"skipped: {said.strip()}")
                sys.exit(SKIPPED)
            raise SystemExit(f"the rig ended: {said}")
        self.url = json.loads(endpoint.read_text())["url"]
        self.token = (self.folder / "data/owner-token").read_text().strip()

    def feed(self):
        cores = os.cpu_count()
        proc = self.folder / "fed/proc"
        (proc / "self").mkdir(parents=True)
        each = "".join(f"cpu{cpu} 0 0 0 0 0 0 0 0 0 0\n" for cpu in range(cores))
        (proc / "loadavg").write_text("0.00 0.00 0.00 1/200 77\n")
        (proc / "stat").write_text(f"cpu 0 0 0 0 0 0 0 0 0 0\n{each}")
        (proc / "self/stat").write_text("7 (rig) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 0 0 0")
        (proc / "self/status").write_text(f"Name:\trig\nCpus_allowed_list:\t0-{cores - 1}\n")

    def lay_out(self):
        repo = self.folder / "repo"
        (repo / "src").mkdir(parents=True)
        (repo / "kit.toml").write_text(KIT)
        (repo / "measure.sh").write_text(MEASURE)
        (repo / "src/seconds").write_text("0.0100")
        git(repo, "init", "--quiet", "--initial-branch=main")
        git(repo, "add", "--all")
        git(repo, "commit", "--quiet", "--message=Begin")
        for name, seconds in [("faster", "0.0050"), ("slower", "0.0200")]:
            git(repo, "switch", "--quiet", "--create", name, "main")
            (repo / "src/seconds").write_text(seconds)
            git(repo, "commit", "--quiet", "--all", f"--message=Be {name}")
        # What the description's own example names.
        git(repo, "branch", "my-branch", "slower")
        git(repo, "switch", "--quiet", "main")
        for lane in range(1, LANES + 1):
            git(repo, "worktree", "add", "--quiet", "-b", f"lane-{lane}", str(self.folder / f"lane-{lane}"), "main")

    def run_request(self):
        lanes = [str(self.folder / f"lane-{lane}") for lane in range(1, LANES + 1)]
        return {"repo": str(self.folder / "repo"), "kit": "kit.toml", "champion": "main", "lanes": lanes}

    def dev_run(self, run, lane, argv):
        return self.ask("POST", f"/v1/runs/{run}/lanes/{lane}/dev-runs", {"argv": argv})["dev_run"]

    def until_ended(self, path):
        row = None

        def ended():
            nonlocal row
            row = self.ask("GET", path)
            return row["status"]["status"] == "ended"

        until(f"{path} ends", ended)
        return row

    def ask(self, method, path, body=None):
        headers = {"authorization": f"Bearer {self.token}"}
        if body is not None:
            headers["content-type"] = "application/json"
            body = json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, body, headers, method=method)
        try:
            with OPENER.open(request, timeout=60) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as no:
            raise SystemExit(f"{method} {path}: {no.code} {no.read().decode()}") from None

    def end(self):
        if self.process is None or self.process.poll() is not None:
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def until(what, is_so):
    end = time.monotonic() + MUST_COME
    while not is_so():
        if time.monotonic() > end:
            raise SystemExit(f"waited {MUST_COME} s until {what}")
        time.sleep(0.05)


def git(repo, *args):
    plain = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
    names = ["-c", "user.name=t", "-c", "user.email=t@localhost", "-c", "safe.directory=*"]
    subprocess.run(["git", "-C", str(repo), *names, *args], check=True, env={**os.environ, **plain})
