#!/bin/sh
# Checks a machine's GPU with the real driver: readings, isolation, a real comparison, noise, containment.
# usage: tests/gpu-check.sh [PATH OF thermite]     (default: target/release/thermite, else target/debug/thermite)
#   GPU_CHECK_CARD   which card: an index of nvidia-smi or a UUID (default: 0)
# Needs thermite, the NVIDIA driver, nvcc on PATH, git and a POSIX shell with its tools; no network; one GPU; less than 8 minutes.
# Exit codes: 0 every row passed; 1 some row failed; 64 wrong usage; 77 nothing to check here, with what is missing.
set -u

sources=$(cd "$(dirname "$0")/.." && pwd)
kit=$sources/examples/kits/cuda-smooth
began=$(date +%s)
# Everything is given up after this, so that a machine is never kept for longer.
all_most=460

missing() {
    echo "gpu-check: nothing to check here: $*" >&2
    exit 77
}

thermite=${1:-}
if [ -z "$thermite" ]; then
    for built in "$sources/target/release/thermite" "$sources/target/debug/thermite"; do
        [ -x "$built" ] && thermite=$built && break
    done
fi
[ -n "$thermite" ] || missing "no binary; build it by \`cargo build --release -p thermite-svc\`, or name it"
if ! "$thermite" --version >/dev/null 2>&1; then
    echo "gpu-check: $thermite is no thermite that runs here" >&2
    exit 64
fi
thermite=$(cd "$(dirname "$thermite")" && pwd)/$(basename "$thermite")
for program in git nvcc timeout mktemp; do
    command -v "$program" >/dev/null 2>&1 || missing "$program is not on PATH"
done

work=$(mktemp -d "${TMPDIR:-/tmp}/gpu-check.XXXXXX")
chmod 755 "$work"
rig=
end() {
    # The rig ends what it started, by its rules.
    [ -z "$rig" ] || { kill -TERM "$rig" 2>/dev/null; wait "$rig" 2>/dev/null; }
    rm -rf "$work"
}
trap end EXIT
trap 'exit 130' INT TERM HUP

data=$work/data
export THERMITE_DATA="$data"
export THERMITE_TARGET=cuda-gpu
export THERMITE_GPUS="${GPU_CHECK_CARD:-0}"
# Of the machine's own settings: neither another rig is asked nor its split taken. The machine's locks stay: a card that
# a rig works on is not disturbed.
unset THERMITE_URL THERMITE_TOKEN_FILE THERMITE_SPLIT

# --- the table ---
failed=0
row() { # row NAME pass|FAIL FIGURES
    printf '%-13s %-5s %s\n' "$1" "$2" "$3"
    [ "$2" = pass ] || failed=$((failed + 1))
}
spent() { echo $(($(date +%s) - began)); }
left() {
    left=$((all_most - $(spent)))
    [ "$left" -gt 5 ] && echo "$left" || echo 5
}
# Runs a command for no longer than is left.
within() { timeout -k 10 "$(left)" "$@"; }
last_line() { grep -v '^[[:space:]]*$' "$1" 2>/dev/null | tail -n 1; }
millis() { date +%s%N | cut -c 1-13; }

# --- a rig on the one card ---
"$thermite" serve --listen 127.0.0.1:0 >"$work/serve.out" 2>"$work/serve.log" &
rig=$!
tries=0
until "$thermite" status --json >"$work/status.json" 2>"$work/status.err"; do
    tries=$((tries + 1))
    if ! kill -0 "$rig" 2>/dev/null; then
        wait "$rig"
        code=$?
        rig=
        why=$(last_line "$work/serve.log")
        case $why in
            # What the rig says where there is no driver or no card.
            *NVML* | *"no GPU"* | *libnvidia-ml* | *"no card"*) missing "$why" ;;
        esac
        row serve FAIL "the rig ended with code $code: $why"
        exit 1
    fi
    if [ $tries -gt 120 ]; then
        row serve FAIL "the rig does not answer after $(spent) s: $(last_line "$work/serve.log")"
        exit 1
    fi
    sleep 0.5
done

# One line for each brace of the rig's view, so that plain grep finds its way.
look() { "$thermite" status --json 2>/dev/null | tr '{' '\n' >"$work/look"; }
# signal NAME: the figure of the card's newest reading; `unknown` where it has none.
signal() {
    value=$(grep "\"name\": *\"$1\"" "$work/look" | head -n 1 | sed -n 's/.*"value": *\(-\{0,1\}[0-9.]*\).*/\1/p')
    echo "${value:-unknown}"
}
signals() {
    echo "use $(signal gpu_use) %, memory $(signal gpu_memory) MiB, $(signal temperature) C, processes $(signal other_programs)"
}
not_ready() {
    grep '"required": *true' "$work/look" | grep -v '"state": *"ok"' | sed -n 's/.*"name": *"\([a-z0-9_]*\)".*/\1/p' | tr '\n' ' '
}
over() { # over A B: whether A is a number larger than B
    case $1 in unknown | '') return 1 ;; esac
    [ "${1%%.*}" -gt "$2" ]
}
look
uuid=$(sed -n 's/.*"uuid": *"\([^"]*\)".*/\1/p' "$work/look" | head -n 1)
model=$(sed -n 's/.*"model": *"\([^"]*\)".*/\1/p' "$work/look" | head -n 1)
driver=$(sed -n 's/.*"driver": *"\([^"]*\)".*/\1/p' "$work/look" | head -n 1)
printf '%-13s %-5s %s\n' row result figures
row card pass "$model, $uuid, $driver, $(nvcc --version | last_line /dev/stdin)"

# --- what runs on it: a kit with a known faster change, and three small programs ---
mkdir "$work/repo"
cp "$kit"/*.cu "$kit"/*.h "$kit"/*.sh "$work/repo/"
sed 's/^dev_run_max = .*/dev_run_max = "12 s"/' "$kit/kit.toml" >"$work/repo/kit.toml"
printf '/burn\n/see\n/measure\n/check\n' >"$work/repo/.gitignore"
in_repo() {
    GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null git -C "$work/repo" -c user.name=check \
        -c user.email=check@thermite.invalid -c commit.gpgsign=false -c core.hooksPath=/dev/null "$@"
}
laid_out() {
    in_repo init --quiet --initial-branch=main && in_repo add --all && in_repo commit --quiet --message="Smooth a grid" &&
        in_repo worktree add --quiet -b lane-1 "$work/lane-1" main &&
        in_repo worktree add --quiet -b lane-2 "$work/lane-2" main &&
        in_repo worktree add --quiet -b along-rows "$work/faster" main &&
        cp "$kit/changes/along-rows.cu" "$work/faster/smooth.cu" &&
        in_repo -C "$work/faster" commit --quiet --all --message="Along rows"
}
if ! laid_out; then
    row repository FAIL "git could not lay it out"
    exit 1
fi

cat >"$work/see.cu" <<'CU'
/* Says which cards this program sees: how many, and the first one's UUID. */
#include <stdio.h>
int main(void) {
    int cards = 0;
    cudaDeviceProp card;
    cudaError_t answer = cudaGetDeviceCount(&cards);
    if (answer != cudaSuccess || cards == 0) {
        printf("cards 0 %s\n", cudaGetErrorString(answer));
        return 1;
    }
    if (cudaGetDeviceProperties(&card, 0) != cudaSuccess) return 1;
    printf("cards %d GPU-", cards);
    for (int at = 0; at < 16; at++) {
        printf("%s%02x", at == 4 || at == 6 || at == 8 || at == 10 ? "-" : "", (unsigned char)card.uuid.bytes[at]);
    }
    printf("\n");
    return 0;
}
CU
cat >"$work/burn.cu" <<'CU'
/* Keeps the card busy for so many seconds; with a second word also by a process that leaves its session, ignores what
 * asks it to end, and would go on. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#define FLOATS (1 << 26)
__global__ void turn(float *cells, int rounds) {
    int at = blockIdx.x * 256 + threadIdx.x;
    float cell = cells[at];
    for (int round = 0; round < rounds; round++) cell = cell * 0.999f + 0.001f;
    cells[at] = cell;
}
int main(int count, char **words) {
    time_t until = time(0) + (count > 1 ? atoi(words[1]) : 10);
    float *cells;
    signal(SIGTERM, SIG_IGN);
    if (count > 2 && fork() == 0) setsid();
    if (cudaMalloc((void **)&cells, FLOATS * sizeof(float)) != cudaSuccess) return 1;
    printf("burning\n");
    fflush(stdout);
    while (time(0) < until) {
        turn<<<4096, 256>>>(cells, 20000);
        if (cudaDeviceSynchronize() != cudaSuccess) return 1;
    }
    return 0;
}
CU
for program in see burn; do
    if ! (cd "$work" && within nvcc -O3 -o "$program" "$program.cu") >"$work/nvcc.log" 2>&1; then
        row nvcc FAIL "$program.cu does not build: $(last_line "$work/nvcc.log")"
        exit 1
    fi
    cp "$work/$program" "$work/lane-1/" && cp "$work/$program" "$work/lane-2/"
done
if ! within "$thermite" start --repo "$work/repo" --kit kit.toml --champion main --lane "$work/lane-1" \
    --lane "$work/lane-2" >"$work/start.log" 2>&1; then
    row start FAIL "$(last_line "$work/start.log")"
    exit 1
fi
row built pass "two programs and a run of two lanes after $(spent) s"

# --- readings, idle ---
ready() { # waits until the card is ready again, at most so many seconds
    tries=$(($1 * 2))
    while [ $tries -gt 0 ]; do
        look
        [ -z "$(not_ready)" ] && grep -q '"required"' "$work/look" && return 0
        tries=$((tries - 1))
        sleep 0.5
    done
    return 1
}
if ready 30; then row idle pass "$(signals)"; else row idle FAIL "not ready for: $(not_ready); $(signals)"; fi
idle_memory=$(signal gpu_memory)

# --- isolation: a lane sees its card alone, and no other can be opened or made ---
# Where cards' nodes are: a run is not given the rig's settings, so the script is told.
nodes=${THERMITE_DEVICE_NODES:-/dev}
cat >"$work/lane-1/reach.sh" <<'SH'
./see
env -u CUDA_VISIBLE_DEVICES -u NVIDIA_VISIBLE_DEVICES ./see | sed 's/^/bare /'
for node in "$1"/nvidia[0-9]*; do
    [ -e "$node" ] && (: <"$node") 2>/dev/null && echo "opened $node"
done
made=${TMPDIR:-/tmp}/card
for minor in 0 1 2 3 4 5 6 7; do
    mknod "$made$minor" c 195 "$minor" 2>/dev/null && (: <"$made$minor") 2>/dev/null && echo "made 195:$minor"
done
exit 0
SH
within "$thermite" run --lane 1 -- sh reach.sh "$nodes" >"$work/reach.out" 2>"$work/reach.err"
seen=$(sed -n 's/^cards //p' "$work/reach.out" | head -n 1)
bare=$(sed -n 's/^bare cards //p' "$work/reach.out" | head -n 1)
opened=$(grep -c '^opened' "$work/reach.out")
made=$(grep -c '^made' "$work/reach.out")
others=0
for node in "$nodes"/nvidia[0-9]*; do [ -e "$node" ] && others=$((others + 1)); done
[ $others -gt 0 ] && others=$((others - 1))
figures="sees $seen; without the variables $bare; card nodes it opens: $opened, makes: $made; the machine has $others other cards"
# A stand-in's nodes are in a folder of their own, and only its variables say which it is. A card is seen without them.
if [ "$seen" = "1 $uuid" ] && { [ "$bare" = "1 $uuid" ] || [ "$nodes" != /dev ]; } && [ "$opened" -le 1 ] && [ "$made" -eq 0 ]; then
    row isolation pass "$figures"
else
    row isolation FAIL "$figures; $(last_line "$work/reach.err")"
fi

# --- readings, busy; and a process that keeps the card busy is ended, and the card passes on ---
"$thermite" run --lane 1 -- ./burn 600 stay >"$work/burn.out" 2>"$work/burn.err" &
burner=$!
busy='never busy'
tries=20
while [ $tries -gt 0 ]; do
    sleep 0.5
    look
    if over "$(signal gpu_use)" 5; then
        busy=
        break
    fi
    tries=$((tries - 1))
done
busy_said=$(signals)
if [ -z "$busy" ]; then row busy pass "$busy_said"; else row busy FAIL "$busy within 10 s: $busy_said"; fi
asked=$(millis)
within "$thermite" run --lane 2 -- ./see >"$work/next.out" 2>"$work/next.err"
next=$?
passed_on=$(($(millis) - asked))
wait "$burner"
burnt=$?
ready 30
back=$?
look
figures="ended at its limit with code $burnt; the next lane ran with code $next, $passed_on ms after it asked; memory $(signal gpu_memory) MiB (idle $idle_memory)"
if [ $burnt -eq 124 ] && [ $next -eq 0 ] && [ $back -eq 0 ]; then
    row containment pass "$figures"
else
    row containment FAIL "$figures; $(last_line "$work/burn.err"); $(last_line "$work/next.err"); not ready for: $(not_ready)"
fi

# --- a real comparison with the known faster kernel, and the champion against itself ---
compared=$(spent)
within "$thermite" judge --change along-rows >"$work/judge.out" 2>"$work/judge.err"
code=$?
compared=$(($(spent) - compared))
said=$(grep -i 'lower bound' "$work/judge.out" "$work/judge.err" 2>/dev/null | tail -n 1 | sed 's/^[^:]*://')
if [ $code -eq 0 ]; then
    row comparison pass "a win in $compared s;$said"
else
    row comparison FAIL "code $code after $compared s: $(last_line "$work/judge.err") $(last_line "$work/judge.out")"
fi
"$thermite" noise --json 2>/dev/null | tr '{' '\n' >"$work/noise"
scale=$(sed -n 's/.*"scale": *\([0-9.e-]*\).*/\1/p' "$work/noise" | head -n 1)
alarm=$(grep -c '"quarantined": *"' "$work/noise")
percent=$(echo "${scale:-none}" | awk '/^[0-9.e-]+$/ { printf "%.2f", (exp($1) - 1) * 100; ok = 1 } END { if (!ok) print "none" }')
# The kit plans for 20 %: the rig itself warns over 40 and refuses over 60.
if [ "$percent" != none ] && [ "${percent%%.*}" -lt 20 ] && [ "$alarm" -eq 0 ]; then
    row noise pass "$percent % a block, champion against champion, no alarm"
else
    row noise FAIL "$percent % a block, champion against champion, $alarm alarms"
fi

# --- nothing of it is left ---
kill -TERM "$rig"
wait "$rig"
code=$?
rig=
if [ $code -eq 0 ]; then row end pass "by the rules, $(spent) s in all"; else row end FAIL "code $code: $(last_line "$work/serve.log")"; fi

[ $failed -eq 0 ] && echo "all rows passed" || echo "$failed rows failed"
[ $failed -eq 0 ]
