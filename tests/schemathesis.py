"""A real rig with a real history, and schemathesis over the description that it serves.

usage: schemathesis.py BINARY SCHEMATHESIS
Every id that schemathesis is given is one of this rig's; any failure of any check and any warning fails.
"""

import json
import os
import subprocess
import sys
import urllib.request

from python_rig import OPENER, Rig, started, until


def main(binary, schemathesis):
    with started(binary, Described) as rig:
        rig.live()
        Checks(rig.folder, schemathesis, rig).run()


class Described(Rig):
    """A rig that is worked with."""

    def live(self):
        """What a rig has that is worked with: two runs, verdicts of both kinds, and work under way and waiting."""
        self.over = self.ask("POST", "/v1/runs", self.run_request())["run"]
        self.ended_dev_run = self.dev_run(self.over, 1, ["sh", "-c", "echo tried; echo twice >&2; exit 3"])
        self.until_ended(f"/v1/dev-runs/{self.ended_dev_run}")
        self.won = self.ask("POST", f"/v1/runs/{self.over}/jobs", {"change": "faster"})["job"]
        self.lost = self.ask("POST", f"/v1/runs/{self.over}/jobs", {"change": "slower"})["job"]
        for job, outcome in [(self.won, "win"), (self.lost, "no_gain")]:
            row = self.until_ended(f"/v1/jobs/{job}")
            if row["status"]["outcome"]["outcome"] != outcome:
                raise SystemExit(f"job {job} ended otherwise: {row}")
        self.ask("POST", f"/v1/runs/{self.over}/end", {})
        self.run = self.ask("POST", "/v1/runs", self.run_request())["run"]
        self.held = self.dev_run(self.run, 1, ["sh", "-c", "echo under way; exec sleep 3600"])
        until("it runs", lambda: self.ask("GET", f"/v1/dev-runs/{self.held}")["status"]["status"] == "running")
        self.waiting = self.dev_run(self.run, 2, ["echo", "later"])
        lane = {"kind": "lane", "lane": 2, "note": "an agent"}
        self.lane_token = self.ask("POST", "/v1/tokens", lane)["token"]
        self.rotated_token = self.ask("POST", "/v1/tokens", lane)["token"]
        self.spare_tokens = self.ask("POST", "/v1/tokens", lane)["token"]
        self.queued = self.ask("POST", f"/v1/runs/{self.run}/jobs", {"change": "faster"})["job"]


class Checks:
    """schemathesis, part by part: what changes the rig comes last, each with ids for which it can be done."""

    def __init__(self, folder, schemathesis, rig):
        self.folder = folder
        self.schemathesis = schemathesis
        self.rig = rig

    def run(self):
        rig = self.rig
        ids = {"run": rig.run, "lane": 3, "job": rig.won, "dev_run": rig.held, "token": rig.lane_token, "id": rig.won, "device": 0}
        # A token that ends can end once. Beside the making of tokens its later 404 would be taken for a lost new one.
        ending_tokens = ["revoke_token", "rotate_token"]
        changing = ["ask_dev_run", "start_run", "pause_run", "end_run", *ending_tokens]
        self.part("all that leaves the runs as they are", ids, [f"--exclude-operation-id={name}" for name in changing])
        for operation in ending_tokens:
            self.part(operation, ids, [f"--include-operation-id={operation}"])
        self.figures()
        # With the device free what is asked for ends at once, and the lane may ask again.
        for dev_run in (rig.held, rig.waiting):
            rig.ask("DELETE", f"/v1/dev-runs/{dev_run}")
        until("the judge is done", lambda: rig.ask("GET", "/v1/rig")["jobs_live"] == 0)
        self.part("asking for development runs", ids, ["--include-operation-id=ask_dev_run"])
        self.part("pausing", ids, ["--include-operation-id=pause_run"])
        rig.ask("POST", f"/v1/runs/{rig.run}/end", {})
        self.part("starting", ids, ["--include-operation-id=start_run"])
        live = next(run["run"] for run in rig.ask("GET", "/v1/runs") if run["state"] == "running")
        self.part("ending", {**ids, "run": live}, ["--include-operation-id=end_run"])

    def figures(self):
        """The figures as Prometheus' own library reads them."""
        from prometheus_client.openmetrics import parser

        request = urllib.request.Request(f"{self.rig.url}/metrics", headers={"authorization": f"Bearer {self.rig.token}"})
        with OPENER.open(request, timeout=60) as answer:
            families = list(parser.text_string_to_metric_families(answer.read().decode()))
        samples = sum(len(family.samples) for family in families)
        if len(families) < 12 or samples < 30:
            raise SystemExit(f"only {len(families)} figures with {samples} samples")
        print(f"-- {len(families)} figures, {samples} samples, read by prometheus_client", flush=True)

    def part(self, what, ids, selection):
        print(f"-- {what}", flush=True)
        config = self.folder / "schemathesis.toml"
        config.write_text(self.config(ids))
        hooks = self.folder / "hooks.py"
        hooks.write_text(f"{HOOKS}{self.rig.run_request()!r}\n")
        command = [self.schemathesis, "--config-file", str(config), "run", f"{self.rig.url}/openapi.json"]
        command += ["--seed=1", "--no-color", *selection]
        environment = {**os.environ, "SCHEMATHESIS_HOOKS": str(hooks)}
        done = subprocess.run(command, cwd=self.folder, check=False, env=environment)
        if done.returncode != 0:
            print((self.folder / "log").read_text()[-2000:])
            raise SystemExit(f"schemathesis found fault with {what}")

    def config(self, ids):
        lines = [
            f'headers = {{ Authorization = "Bearer {self.rig.token}" }}',
            "request-timeout = 40",
            "[checks]",
            "enabled = true",
            # 422: it is well-formed and can never be, which no schema can tell (no such program, no such commit).
            # 409, 412: not while something else is so. 429: not so many. 304: the asker has it.
            'positive_data_acceptance.expected-statuses = '
            '["2xx", "304", "401", "403", "404", "409", "412", "422", "429"]',
            "[warnings]",
            "fail-on = true",
            "[generation]",
            "max-examples = 20",
            "[parameters]",
            *(f'"path.{name}" = {json.dumps(value)}' for name, value in ids.items()),
        ]
        for operation, name, value in [
            ("cancel_dev_run", "path.dev_run", self.rig.ended_dev_run),
            ("output", "path.dev_run", self.rig.ended_dev_run),
            ("dev_run", "query.wait_ms", 10),
            ("events", "query.for_ms", 100),
            ("ask_dev_run", "body.argv", ["true"]),
            ("submit_job", "body.change", "slower"),
            ("submit_job", "body.champion", "main"),
            ("revoke_token", "path.token", self.rig.spare_tokens),
            ("rotate_token", "path.token", self.rig.rotated_token),
        ]:
            lines += ["[[operations]]", f'include-operation-id = "{operation}"', "[operations.parameters]"]
            lines += [f"{json.dumps(name)} = {json.dumps(value)}"]
        lines += ["[[operations]]", 'include-operation-id = "start_run"', "[operations.parameters]"]
        lines += [f'"body.{name}" = {json.dumps(value)}' for name, value in self.rig.run_request().items()]
        return "\n".join(lines) + "\n"


# Output is bytes of any kind, which schemathesis must know to look at it at all; and an example of a run is one that can
# be started here.
HOOKS = """\
import schemathesis

schemathesis.deserializer("application/octet-stream")(lambda ctx, response: response.content.decode("latin-1"))
schemathesis.deserializer("application/openmetrics-text")(lambda ctx, response: response.content.decode())


@schemathesis.hook
def before_load_schema(context, raw_schema):
    for name, value in RUN.items():
        raw_schema["components"]["schemas"]["StartRun"]["properties"][name]["example"] = value


RUN = \
"""


if __name__ == "__main__":
    main(*sys.argv[1:])
