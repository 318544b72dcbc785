"""A real rig, and PyPI's MCP client at its door for agents, in each protocol that the client speaks.

usage: mcp_client.py BINARY
"""

import asyncio
import sys
import time
import urllib.error
import urllib.request

import mcp
from mcp.client.streamable_http import create_mcp_http_client, streamable_http_client
from python_rig import OPENER, Rig, started

# `legacy` begins with a handshake and has sessions; `auto` speaks the newest protocol, in which each call stands alone.
MODES = ["legacy", "auto"]
# A caller that is gone is noticed at once or at the next sign of life, 5 s; then 10 s at most (rule A10), and the proof.
GONE_NOTICED_MAX = 25


class Agents(Rig):
    """A rig with a run, and a token for each of its lanes."""

    def begin(self):
        self.run = self.ask("POST", "/v1/runs", self.run_request())["run"]
        self.tokens = [
            self.ask("POST", "/v1/tokens", {"kind": "lane", "lane": lane, "note": "agent"})["secret"]
            for lane in (1, 2, 3)
        ]

    def dev_runs(self, lane):
        rows = self.ask("GET", f"/v1/runs/{self.run}/dev-runs?limit=500")
        return [row for row in rows if row["lane"] == lane]

    def client(self, lane, mode, **more):
        http = create_mcp_http_client(headers={"Authorization": f"Bearer {self.tokens[lane - 1]}"})
        return mcp.Client(streamable_http_client(f"{self.url}/mcp", http_client=http), mode=mode, **more)


def text(result):
    return "\n".join(part.text for part in result.content)


def check(is_so, what, *seen):
    if not is_so:
        raise SystemExit(f"{what}: {seen!r}")
    print(f"   {what}", flush=True)


async def tools(rig, mode):
    async with rig.client(1, mode) as agent:
        listed = (await agent.list_tools()).tools
        check([tool.name for tool in listed] == ["run_experiment", "submit", "status"], "the tools are listed", listed)
        told = []

        async def progress(done, total, message):
            told.append((time.monotonic(), message))

        line = "echo first; sleep 2; echo second; exit 3"
        result = await agent.call_tool("run_experiment", {"command": line}, progress_callback=progress)
        came = time.monotonic()
        said = text(result)
        check(not result.is_error and "3" in said.splitlines()[0], "its exit code is told", said)
        check("first\nsecond" in said and "diagnostic only" in said, "its output and rule A8 are told", said)
        live = [at for at, message in told if "first" in (message or "")]
        check(live and came - live[0] > 1, "its output came while it ran", told)
        check(result.structured_content["exit_code"] == 3, "and as a value", result)

        result = await agent.call_tool("run_experiment", {"argv": ["no-such-program"]})
        check(result.is_error and "no-such-program" in text(result), "what can never run is refused", text(result))
        result = await agent.call_tool("run_experiment", {"comand": "true"})
        check(result.is_error and "comand" in text(result), "a wrong argument is named", text(result))
        result = await agent.call_tool("run_experiment", {"command": "head -c 300000 /dev/zero | tr \\\\0 x"})
        check("bytes are left out here" in text(result), "a flood is cut, and that is said", len(text(result)))
        result = await agent.call_tool("status", {})
        check("You have no development run under way" in text(result), "how things stand is told", text(result))


async def waiting(rig, mode):
    """The second lane waits for the first, is told why, and is served."""
    told = []

    async def progress(done, total, message):
        told.append(message)

    async with rig.client(1, mode) as holder, rig.client(2, mode) as waiter:
        held = asyncio.create_task(holder.call_tool("run_experiment", {"command": "sleep 5"}))
        await running(rig, 1)
        result = await waiter.call_tool("run_experiment", {"command": "echo served"}, progress_callback=progress)
        check("served" in text(result), "who waits is served", text(result))
        check(any("lane 1" in (message or "") for message in told), "and is told whom it waits for", told)
        await held


async def cancelled(rig, mode):
    """A call that is cancelled, and a caller that goes away: nothing of the run is left."""
    async with rig.client(1, mode) as agent:
        call = asyncio.create_task(agent.call_tool("run_experiment", {"command": "sleep 3600"}))
        await running(rig, 1)
        begun = time.monotonic()
        call.cancel()
        await ended(rig, 1)
        took = time.monotonic() - begun
        check(took < GONE_NOTICED_MAX, f"a cancelled call's run ended after {took:.1f} s", took)
    leaver = await asyncio.create_subprocess_exec(
        sys.executable, __file__, "--leave", rig.url, rig.tokens[0], mode, stdin=asyncio.subprocess.DEVNULL
    )
    await running(rig, 1)
    begun = time.monotonic()
    leaver.kill()
    await leaver.wait()
    await ended(rig, 1)
    took = time.monotonic() - begun
    check(took < GONE_NOTICED_MAX, f"a killed caller's run ended after {took:.1f} s", took)


async def leave(url, token, mode):
    """What is killed in the middle of its call."""
    http = create_mcp_http_client(headers={"Authorization": f"Bearer {token}"})
    async with mcp.Client(streamable_http_client(f"{url}/mcp", http_client=http), mode=mode) as agent:
        await agent.call_tool("run_experiment", {"command": "sleep 3600"})


async def judged(rig, mode, change):
    async with rig.client(2, mode) as agent:
        result = await agent.call_tool("submit", {"change": change})
        check(not result.is_error, "a change is submitted", text(result))
        job = result.structured_content["submitted"]["job"]
        result = await agent.call_tool("status", {"job": job, "wait_seconds": 300})
        row = result.structured_content["job"]
        check(row["status"]["status"] == "ended", "and its verdict waited for", row)
        check("no gain" in text(result), f"which is told: {text(result).splitlines()[0]}", text(result))


def owners(rig):
    """An owner's token is no lane's, which the client would tell as `an error response`: asked without it."""
    headers = {"authorization": f"Bearer {rig.token}", "content-type": "application/json"}
    request = urllib.request.Request(f"{rig.url}/mcp", b"{}", headers, method="POST")
    try:
        OPENER.open(request, timeout=60)
    except urllib.error.HTTPError as no:
        said = no.read().decode()
        check(no.code == 403 and "thermite token new --kind lane --lane" in said, "an owner's token is told the way", said)
    else:
        raise SystemExit("an owner's token opened the door for agents")


async def running(rig, lane):
    await comes(lambda: (rows := rig.dev_runs(lane)) and rows[-1]["status"]["status"] == "running", "it runs")


async def ended(rig, lane):
    await comes(lambda: rig.dev_runs(lane)[-1]["status"]["status"] == "ended", "it ends")


async def comes(is_so, what):
    """As `until`, with the client going on meanwhile."""
    end = time.monotonic() + 120
    while not await asyncio.to_thread(is_so):
        if time.monotonic() > end:
            raise SystemExit(f"waited 120 s until {what}")
        await asyncio.sleep(0.05)


async def main(binary):
    with started(binary, Agents) as rig:
        rig.begin()
        for mode, change in zip(MODES, ["slower", "my-branch"], strict=True):
            print(f"-- the client's mode {mode}", flush=True)
            await tools(rig, mode)
            await waiting(rig, mode)
            await cancelled(rig, mode)
            await judged(rig, mode, change)
        owners(rig)


if __name__ == "__main__":
    if sys.argv[1] == "--leave":
        asyncio.run(leave(*sys.argv[2:]))
    else:
        asyncio.run(main(sys.argv[1]))
