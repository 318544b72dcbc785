//! Every limit and threshold, once, with its unit in the type and its rule above it (rule D8).
//!
//! `docs/limits.md` is the same list for people. What a kit's contract may set is in [`crate::contract`].

use crate::time::Span;

/// How long a development run may hold a shared device, from its start (rule A5). A contract may set it.
pub const SHARED_DEV_RUN_MAX: Span = Span::minutes(5);
/// Between SIGTERM and the kill of everything a run started (rule A5).
pub const STOP_GRACE: Span = Span::seconds(2);
/// How long a development run waits before it gives up (rule A6).
pub const DEV_RUN_WAIT_MAX: Span = Span::minutes(10);
/// The shortest wait that may be set: a shorter one gives up before a device can pass on.
pub const DEV_RUN_WAIT_LEAST: Span = Span::seconds(1);
/// The longest wait that may be set.
pub const DEV_RUN_WAIT_MOST: Span = Span::hours(24);
/// How long a stop may take to be proved before the device is out of service (rules A7, A10).
pub const PROOF_MAX: Span = Span::seconds(10);
/// How long before [`PROOF_MAX`] is over a device has said what is left on it, so that the reason is heard (rule A7).
pub const RELEASE_TOLD_BEFORE: Span = Span::millis(250);
/// How long ending a rig may take, the proofs of its stops included; what is left then is the next start's.
pub const RIG_END_MAX: Span = Span::seconds(15);
/// How long a run attached to a caller's stream lives on after the stream drops (rule A10).
pub const DETACHED_CALLER_MAX: Span = Span::seconds(10);
/// Pool's backstop for a grant nobody claims or gives back.
pub const CLAIM_MAX: Span = Span::seconds(5);
/// Jobs that the judge queue lists to the pool one by one; the rest it counts, so that a long queue costs no more.
pub const WORK_LISTED_MAX: usize = 32;
/// How long preparing a development run may take, before its start (rule A5).
pub const DEV_RUN_PREPARE_MAX: Span = Span::minutes(2);
/// Processes that development runs left behind and keep (rule C3) which a view lists.
pub const LEFTOVERS_SHOWN_MAX: usize = 100;
/// Development runs whose leftovers may live on at once (rule C3): each costs the rig a few descriptors. What a further
/// one leaves is stopped.
pub const LEFTOVERS_KEPT_MAX: usize = 64;
/// Less room than this in the data folder is said to be little, in bytes.
pub const DISK_FREE_LEAST: u64 = 1024 * 1024 * 1024;
/// How long a device that is out of service rests before it is tried again (rule B10).
pub const REQUALIFY_AFTER: Span = Span::seconds(30);

/// The longest that a device out of service rests before it is tried again: each fault in a row doubles the rest.
pub const REQUALIFY_MOST: Span = Span::minutes(15);
/// Different jobs that must fail on one card in a row, by nobody's fault, before the fault is taken for the card's
/// (rule D5). One job's failures may be its own.
pub const CARD_FAULT_JOBS: usize = 3;
/// Cards that each side of a split may have (rule B1).
pub const CARDS_OF_SIDE_MAX: usize = 8;
/// How long a new split may take to be in force: what holds a device is stopped and proved gone first (rule B9). For
/// certificates.
pub const NEW_SPLIT_MAX: Span = Span::seconds(30);

/// Runner processes that a rig's list may name (rule E8): each is spoken to on its own.
pub const RUNNER_PROCESSES_MAX: usize = 64;
/// Runners that one process may serve (rule E8): one a device, and no machine that we know has more GPUs.
pub const RUNNERS_OF_PROCESS_MAX: usize = 16;
/// Runners that a rig's list may have in all (rule E8): every view looks at each.
pub const RUNNERS_MAX: usize = 256;
/// How far the numbers of runners jump ahead in a restored rig, so that none is another runner's: a list may have given
/// out as many since the backup.
pub const RUNNER_NUMBERS_SKIPPED: u16 = 256;
/// How often the core asks each runner whether it is there (rule E11).
pub const RUNNER_CHECK_EVERY: Span = Span::seconds(5);
/// How long an ask of a runner may take; a check that has no answer by then is missed (rule E11).
pub const RUNNER_ASK_MAX: Span = Span::seconds(4);
/// Checks missed in a row that make a runner away (rule E11).
pub const RUNNER_CHECKS_MISSED: u32 = 2;
/// How long a ticket is good for a start, by the runner's own clock: what comes later was long under way (docs/bus.md).
pub const TICKET_GOOD: Span = Span::seconds(15);
/// How long a runner may work on unheard: from the issue of the ticket of the last check or start it heard (rule E11).
pub const LEASE: Span = Span::seconds(60);
/// How far into its lease a runner begins its own stop: what is left of it is grace and proof (rule E11).
pub const LEASE_STOP_AT: Span = Span::seconds(47);
/// When the core hands on work whose end nobody confirmed: so long after the newest ticket came (rule E11). By then the
/// lease is over, and a second between two clocks is allowed for.
pub const HAND_ON_AFTER: Span = Span::seconds(61);
/// How long a runner keeps an end that the core has not acknowledged.
pub const RUNNER_ENDED_KEPT: Span = Span::hours(24);
/// Ends that a runner keeps at once and a check lists; the oldest go first.
pub const RUNNER_ENDED_MAX: usize = 64;
/// Lines after which a runner's journal is written anew with what still counts.
pub const JOURNAL_LINES_MAX: usize = 1_024;
/// Tickets that a runner remembers: the ones of a lease's length of checks, several times over.
pub const TICKETS_KEPT: usize = 64;
/// How often the core asks after a stage's step or an ask that is not answered yet; a hint asks at once.
pub const RUNNER_TELL_EVERY: Span = Span::seconds(1);
/// How long the core waits before it tries an ask again that could not be sent, or that was answered with nothing.
pub const RUNNER_RETRY_EVERY: Span = Span::millis(500);
/// How often the core looks for new output of a development run on a runner.
pub const RUNNER_OUTPUT_EVERY: Span = Span::millis(250);
/// What one ask brings of a development run's output, in bytes.
pub const RUNNER_OUTPUT_BYTES_MAX: u32 = 256 * 1024;
/// How long bringing commits and model files to a runner and laying them out may take, before a start (rule A5).
pub const RUNNER_PREPARE_MAX: Span = Span::minutes(30);

/// How often the CPU driver looks whether the machine is quiet (rule C2): the load average moves in 5 s steps.
pub const CPU_LOOK_EVERY: Span = Span::seconds(5);
/// How long the judge waits for a quiet machine before the attempt is an infrastructure failure (rules C2, D1).
pub const READY_WAIT_MAX: Span = Span::seconds(180);
/// The one-minute load average may be at most this share of the cores (rule C2).
pub const LOAD_SHARE_MAX: f64 = 0.75;
/// Other programs may use at most this share of the cores during the direct sample (rule C2).
pub const DIRECT_SAMPLE_SHARE_MAX: f64 = 0.25;
/// How long the direct sample of the other programs' CPU use takes (rule C2).
pub const DIRECT_SAMPLE: Span = Span::millis(500);
/// The kernel's own decay of the one-minute load average.
pub const LOAD_DECAY: Span = Span::seconds(60);

/// How often the judge looks whether a card is quiet (rule D1).
pub const GPU_LOOK_EVERY: Span = Span::seconds(2);
/// The most a card may be in use before a block, in percent, as the median of its newest samples (rule D1).
pub const GPU_USE_MAX: f64 = 5.0;
/// Samples apart from the judge's own use that say how busy a card is (rule D1); with fewer it is unknown.
pub const GPU_USE_SAMPLES_LEAST: usize = 5;
/// How far over its resting level a card's memory may be, as a share of all of it (rules A7, D1).
pub const GPU_MEMORY_SHARE_OVER_RESTING: f64 = 0.02;
/// The same in bytes, for small cards: the larger of the two holds (rules A7, D1).
pub const GPU_MEMORY_BYTES_OVER_RESTING: u64 = 256 * 1024 * 1024;
/// The highest resting level believed, as a share of a card's memory: what a dead process held is no rest (rule A7).
pub const GPU_RESTING_SHARE_MAX: f64 = 0.10;
/// The same in bytes, for cards that also draw: the larger of the two holds (rule A7).
pub const GPU_RESTING_BYTES_MAX: u64 = 2 * 1024 * 1024 * 1024;
/// How far below the point where it slows itself down a card must be, in degrees Celsius (rule D1).
pub const GPU_TEMPERATURE_BELOW_SLOW_DOWN: f64 = 10.0;
/// The hottest a card may be that does not tell that point, in degrees Celsius (rule D1).
pub const GPU_TEMPERATURE_MAX: f64 = 83.0;
/// NVML's bits for a card that is slowed: power cap, hardware slow-down, heat by software and by hardware, power brake
/// (rule D1). Idle, application clocks and the like are none of them.
pub const GPU_SLOWED_BITS: u64 = 0xEC;
/// How often a card is sampled (rule D1).
pub const GPU_SAMPLE_EVERY: Span = Span::millis(200);
/// How often a card is sampled inside a block: asking it costs the driver's own lock, which a block may want.
pub const GPU_SAMPLE_IN_BLOCK_EVERY: Span = Span::millis(500);
/// How often it is sampled in a block until the measured process was seen on it (rule B3).
pub const GPU_PLACEMENT_LOOK_EVERY: Span = Span::millis(20);
/// How long after a block a card's use is still the judge's own: NVML tells it as a mean of up to a second.
pub const GPU_SETTLES_WITHIN: Span = Span::seconds(1);
/// The oldest sample that says how busy a card is.
pub const GPU_SAMPLE_AGE_MAX: Span = Span::seconds(5);
/// Samples of a card kept.
pub const GPU_SAMPLES_KEPT: usize = 64;
/// How long a call to a card's driver may take before the card is unresponsive (rule B10).
pub const GPU_CALL_MAX: Span = Span::seconds(5);
/// How long a reading waits for enough samples before it says that they are unknown.
pub const GPU_READING_WAIT_MAX: Span = Span::seconds(4);
/// How often a card at fault is tried again (rule B10).
pub const GPU_RETRY_EVERY: Span = Span::seconds(2);
/// How long finding the machine's cards may take, and once more what each says of itself.
pub const GPU_LIST_MAX: Span = Span::seconds(10);

/// What a stage's turn takes at most beside its own steps: its grant, its records, the proof of its stop, and the rest
/// after a failure. For certificates (rule A9).
pub const STAGE_TURN_MAX: Span = Span::seconds(30);
/// Infrastructure failures after which a job ends without a verdict (rule D5).
pub const INFRASTRUCTURE_FAILURES_MAX: u32 = 5;
/// How long a job rests after an infrastructure failure before its next attempt.
pub const RETRY_AFTER: Span = Span::seconds(5);
/// How long a job rests after an attempt that the disk had no room for: what fills a disk does not go in seconds.
pub const DISK_FULL_RETRY_AFTER: Span = Span::seconds(30);
/// Room below which a build or check that failed is taken for one that a full disk failed, in bytes.
pub const WORK_ROOM_MIN_BYTES: u64 = 16 * 1024 * 1024;
/// Blocks that make one measure of noise (JUDGING.md, noise per card).
pub const NOISE_BLOCKS: u32 = 40;
/// How long a measure of noise is good for.
pub const NOISE_MAX_AGE: Span = Span::hours(24);
/// A run shorter than this cannot be told by a clock around a process: its start alone varies by as much.
pub const LEAST_TIMED_RUN_NS: u64 = 1_000_000;
/// The same for a run whose time the kit's own program reports: below it a nanosecond is over 0.1 % of the run.
pub const LEAST_REPORTED_RUN_NS: u64 = 1_000;

/// The longest text that a measuring program may report as its time, in bytes: one number and an end of line.
pub const REPORTED_TIME_BYTES_MAX: usize = 64;
/// The longest time that a measuring program may report: no contract lets a run take longer.
pub const REPORTED_TIME_MAX: Span = Span::hours(24);

/// The largest chance of a false win at a screening (docs/judging.md); a screening win only starts a confirmation.
pub const SCREENING_ALPHA: f64 = 0.05;
/// The largest chance of a false win at a confirmation: what may be claimed of a confirmed comparison.
pub const CONFIRMATION_ALPHA: f64 = 0.01;
/// The largest chance that a change as good as the plan is given up early.
pub const FUTILITY_BETA: f64 = 0.05;
/// The four bets of the method, as multiples of plan effect over noise scale.
pub const BET_MULTIPLIERS: [f64; 4] = [0.5, 1.0, 2.0, 4.0];
/// The smallest bet: smaller ones never decide within the blocks there are.
pub const BET_LEAST: f64 = 0.05;
/// The largest bet: tanh is flat beyond it.
pub const BET_MOST: f64 = 1.5;
/// How many noise scales away a block's ratio still counts in full: an outlier weighs no more than this.
pub const RATIO_CLIP: f64 = 2.0;
/// How much larger than the measured noise the scale is taken: too small a scale costs more than too large a one.
pub const SCALE_MARGIN: f64 = 1.25;
/// The smallest scale (ln of a ratio): what nanosecond times of the shortest runs can resolve at all.
pub const SCALE_LEAST: f64 = 1e-6;

/// Thrown blocks that a stage bears whatever the number of accepted ones (rule D3).
pub const THROWN_FREE: u32 = 5;
/// Thrown blocks that a stage bears, in percent of the accepted ones (rule D3).
pub const THROWN_PERCENT_MAX: u32 = 25;
/// Throws that fall on one label with less than this chance are taken for steered by the change.
pub const STEERED_CHANCE: f64 = 0.001;
/// How often a timer looks at the rig's clock, which goes on through suspend as a runtime's timers do not (rule A11): so
/// much later than its moment an end may come after the machine wakes.
pub const CLOCK_LOOK_EVERY: Span = Span::seconds(1);
/// How far two clocks may part within a block (rule A11): they are read one after the other, and a reader may be put
/// aside between two reads. Slewing needs no room, since the kernel slews its clocks together; a step or a suspend
/// this short moves no timed run.
pub const CLOCK_PART_MAX: Span = Span::millis(100);

/// A device whose noise is over this many plan effects refuses the contract: a confirmation would take about 153 blocks.
pub const NOISE_REFUSED_PLANS: f64 = 3.0;
/// A device whose noise is over this many plan effects warns.
pub const NOISE_WARNED_PLANS: f64 = 2.0;
/// A job's own scale may be this many times smaller or larger than the measured noise before that is measured again.
pub const NOISE_OFF_FACTOR: f64 = 2.0;
/// Accepted blocks below which a job's own scale says nothing about the noise: it still varies by half.
pub const NOISE_OFF_BLOCKS: u32 = 20;
/// Evidence against "the same program twice" that quarantines a device: a false alarm in its whole life has a chance
/// of at most 2 in this.
pub const HARNESS_ALARM: f64 = 1_000.0;

/// How long a build may take. A contract may set it.
pub const BUILD_MAX: Span = Span::minutes(10);
/// How long a check may take. A contract may set it.
pub const CHECK_MAX: Span = Span::minutes(5);
/// How long one measured run may take. A contract may set it.
pub const MEASURE_MAX: Span = Span::minutes(2);

/// Cards that have a timing user of their own (rule B4): both sides of the largest split.
pub const TIMING_USERS_MAX: u8 = 16;

/// Processes one run may have at once: a rolling forker must not fill the machine's pid table.
pub const RUN_PROCESSES_MAX: u64 = 2_048;
/// What is kept of a run's output from its beginning, in bytes.
pub const OUTPUT_HEAD_BYTES: u64 = 64 * 1024;
/// What is kept of a run's output from its end, in bytes.
pub const OUTPUT_TAIL_BYTES: u64 = 192 * 1024;
/// How long output is read on after a run's end and containment.
pub const OUTPUT_DRAIN_MAX: Span = Span::millis(500);

/// The longest argument list of one command, in arguments.
pub const COMMAND_ARGS_MAX: usize = 1_024;
/// The longest argument list of one command, in bytes.
pub const COMMAND_BYTES_MAX: usize = 128 * 1024;
/// The largest kit.toml read, in bytes.
pub const KIT_BYTES_MAX: u64 = 256 * 1024;
/// How long one git command may take: a first fetch of a large tree from a slow disk.
pub const GIT_COMMAND_MAX: Span = Span::minutes(2);
/// The most new or changed content that one lane's uncommitted change may bring, in bytes.
pub const CHANGE_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// The most new or changed files of one lane's uncommitted change.
pub const CHANGE_FILES_MAX: usize = 20_000;
/// The largest file that a commit may hold which is measured or started from, in bytes: each attempt lays out two copies.
pub const COMMIT_FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// The most that all files of such a commit may hold together, in bytes.
pub const COMMIT_BYTES_MAX: u64 = 1024 * 1024 * 1024;
/// Bytes of a commit transfer that one ask carries (BUS.md): below any bus's default limit, whose raising nobody asks for.
pub const BULK_CHUNK_BYTES_MAX: usize = 512 * 1024;
/// Chunks of one transfer on their way at once: more only wait behind each other.
pub const BULK_WINDOW: usize = 4;
/// Commits that one ask of a runner's store names.
pub const BULK_COMMITS_MAX: usize = 64;
/// Commits that a runner names for a bundle to build on: the newest, which what comes next differs from least.
pub const BULK_TIPS_MAX: usize = 256;
/// The largest bundle of commits sent or taken, in bytes: two of the largest commits, badly packed.
pub const BULK_TRANSFER_BYTES_MAX: u64 = 2 * 1024 * 1024 * 1024;
/// Unfinished transfers that a runner keeps, or made bundles that a core does, in bytes; the longest untouched go first.
pub const BULK_LEFTOVERS_BYTES_MAX: u64 = 4 * 1024 * 1024 * 1024;
/// Unfinished transfers, or made bundles, kept at once: a core brings to few runners at a time.
pub const BULK_LEFTOVERS_MAX: usize = 8;
/// How long an unfinished transfer or a made bundle waits to be gone on with.
pub const BULK_LEFTOVER_KEPT: Span = Span::hours(24);
/// How long a runner checks a bundle before it answers that it is still at it.
pub const BULK_TAKE_ANSWER: Span = Span::seconds(2);
/// How long one git command may take over a bundle: all of a large repository from a slow disk.
pub const BULK_GIT_MAX: Span = Span::minutes(15);
/// Unanswered asks in a row after which bringing commits is given up for this time; it goes on where it stood.
pub const BULK_UNANSWERED_MAX: u32 = 3;
/// Transfers of one bringing: the thin one, all of it once where its base is missing, and each once again where the bytes
/// came out wrong.
pub const BULK_TRANSFERS_TRIED_MAX: u32 = 4;
/// Runs whose commits a runner keeps; what was kept for the longest untouched one goes first.
pub const BULK_RUNS_KEPT: usize = 64;

/// Model files that one kit lists (rule E4).
pub const MODELS_MAX: usize = 32;
/// The largest model file, in bytes.
pub const MODEL_BYTES_MAX: u64 = 1024 * 1024 * 1024 * 1024;
/// The longest URL of a model file, in bytes.
pub const MODEL_URL_BYTES_MAX: usize = 2_048;
/// The longest name of a model file, in characters.
pub const MODEL_NAME_MAX: usize = 128;
/// Model files kept on one machine, in bytes, unless the setting THERMITE_MODELS_KEEP says otherwise; the longest unused go first.
pub const MODELS_KEEP_BYTES: u64 = 200 * 1024 * 1024 * 1024;
/// How long a model file's source may say nothing before the fetch is cut and tried on from where it stands.
pub const MODEL_SILENT_MAX: Span = Span::seconds(60);
/// Cuts in a row, with nothing new between them, after which fetching a model file has failed for this time.
pub const MODEL_CUTS_MAX: u32 = 5;
/// How long an unfinished model file waits to be gone on with.
pub const MODEL_PART_KEPT: Span = Span::hours(7 * 24);

/// The most that is hashed of all artefacts of one side, in bytes.
pub const ARTEFACT_BYTES_MAX: u64 = 4 * 1024 * 1024 * 1024;
/// How much of a failed command's output its sentence repeats, in bytes.
pub const FAILURE_TAIL_BYTES: u64 = 2 * 1024;
/// How long one reading of this machine's CPUs may take before the device counts as not answering.
pub const CPU_READING_MAX: Span = Span::seconds(10);
/// The largest REST request body, in bytes.
pub const REST_BODY_BYTES_MAX: usize = 1024 * 1024;
/// The longest idempotency key, in bytes (rule A13).
pub const IDEMPOTENCY_KEY_BYTES_MAX: usize = 255;
/// How long an idempotency key stands for its request (rule A13): longer than anyone tries again.
pub const IDEMPOTENCY_KEPT: Span = Span::hours(24);
/// Tokens that a rig may have at once: each is looked up in memory.
pub const TOKENS_MAX: usize = 1_000;
/// The longest note beside a token, in bytes.
pub const TOKEN_NOTE_BYTES_MAX: usize = 200;
/// The longest validity that a token may be given: what is to last longer has no end at all.
pub const TOKEN_VALID_MAX: Span = Span::hours(24 * 366 * 10);
/// How long a rotated token may stay valid beside the new one.
pub const TOKEN_OVERLAP_MAX: Span = Span::hours(24 * 7);
/// How long it does where nobody says: time to hand the new one out.
pub const TOKEN_OVERLAP: Span = Span::hours(1);
/// How exactly a token's last use is kept: one write a minute and token at most.
pub const TOKEN_USE_NOTED_EVERY: Span = Span::minutes(1);
/// How long rights on the bus are valid; they are renewed at half of it. Who is not heard of loses them by itself.
pub const CREDENTIAL_VALID: Span = Span::hours(24);
/// How long what was taken back is kept on the list beyond the longest validity: clocks differ a little.
pub const REVOKED_KEPT_FURTHER: Span = Span::hours(1);
/// Rigs that one control keeps: each has a connection of control's on the bus.
pub const RIGS_MAX: usize = 100;
/// Processes that may register in one rig, listed or not: what a rig's token can make control keep.
pub const RIG_PROCESSES_MAX: usize = 256;
/// Starts of one process that a newer one has replaced, which are remembered so that none of them comes back.
pub const STARTS_KEPT: usize = 64;
/// How often a core tells control what its rig looks like.
pub const REPORT_EVERY: Span = Span::seconds(5);
/// The least time between two reports of changes: many changes are one report.
pub const REPORT_REST: Span = Span::seconds(1);
/// The largest document between control and a core, in bytes: half of what a bus takes by default.
pub const REPORT_BYTES_MAX: usize = 512 * 1024;
/// How long the bus may take to answer that it has an account.
pub const ACCOUNT_SENT_MAX: Span = Span::seconds(4);
/// How soon what the bus did not take is sent to it again.
pub const ACCOUNT_SENT_AGAIN: Span = Span::seconds(1);
/// How long after an ask a supervisor may answer it on the bus: fetching a large bundle comes before the answer.
pub const BUS_ANSWER_MAX: Span = Span::minutes(5);
/// The longest path or revision in a REST request, in bytes: Linux's PATH_MAX.
pub const REST_TEXT_BYTES_MAX: usize = 4_096;
/// Environment variables that one development run may be given.
pub const COMMAND_ENV_MAX: usize = 256;
/// How long one REST request may wait for output, an end or an event before it is answered with what there is.
pub const REST_WAIT_MAX: Span = Span::seconds(30);
/// What one REST answer carries of a development run's output, in bytes.
pub const OUTPUT_READ_BYTES_MAX: usize = 256 * 1024;
/// How often a waiting reader looks for new output.
pub const OUTPUT_LOOK_EVERY: Span = Span::millis(20);
/// Rows that one REST answer lists.
pub const ROWS_LISTED_MAX: usize = 500;
/// Events kept for readers that come back, in bytes of their JSON.
pub const EVENTS_KEPT_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Readers of events at once.
pub const EVENT_READERS_MAX: usize = 256;
/// How often a silent stream of events shows that it is alive.
pub const EVENTS_KEEP_ALIVE: Span = Span::seconds(15);
/// How long the rig's own thread may take to answer before it counts as hung: far beyond its slowest answer.
pub const HEALTH_ANSWER_MAX: Span = Span::seconds(5);
/// How long an idle connection stays open: longer than a client that polls takes between two asks.
pub const REST_KEEP_ALIVE: Span = Span::seconds(75);
/// How long answers under way may take once the rig ends.
pub const REST_SHUTDOWN_MAX: Span = Span::seconds(5);
/// How long a call of the MCP door may say nothing: clients have time limits of their own, and a caller that is gone is
/// noticed at a write at the latest.
pub const MCP_SIGN_OF_LIFE: Span = Span::seconds(5);
/// How often a call of the MCP door looks how its development run goes.
pub const MCP_LOOK_EVERY: Span = Span::millis(500);
/// How long an agent may wait for a job's verdict in one call.
pub const MCP_STATUS_WAIT_MAX: Span = Span::minutes(10);
/// Output that one sign of life carries, in bytes; of a flood the newest.
pub const MCP_PROGRESS_BYTES_MAX: usize = 4 * 1024;
/// The first bytes of output that an agent is answered with: its reader has little room, and all of it is at the REST
/// door.
pub const MCP_OUTPUT_HEAD_BYTES: usize = 8 * 1024;
/// The last bytes of it.
pub const MCP_OUTPUT_TAIL_BYTES: usize = 24 * 1024;

/// The largest entry of the log or verdict record kept, in bytes of JSON: what a request's body can become when every
/// byte is escaped, with room to spare.
pub const RECORD_BYTES_MAX: usize = 16 * 1024 * 1024;
/// What goes into one transaction of the log, in entries and records.
pub const GROUP_COMMIT_ROWS_MAX: usize = 4_096;
/// How long a taken idempotency key waits for an append to go into the log's file along with.
pub const KEYS_WAIT_MAX: Span = Span::millis(100);
/// How long the log waits for another program that keeps its file locked.
pub const RECORDS_LOCK_WAIT_MAX: Span = Span::seconds(5);
/// How often the records are tried again while they cannot be written.
pub const RECORDS_RETRY_EVERY: Span = Span::seconds(1);
/// Events kept for readers that fall behind; one that missed some is told so.
pub const EVENTS_KEPT: usize = 4_096;
/// Verdicts that are given again without measuring, the oldest out first (rule D5): a few megabytes.
pub const SETTLED_VERDICTS_MAX: usize = 10_000;
/// Jobs that may wait at once; the next is refused.
pub const JOBS_QUEUED_MAX: usize = 200_000;
/// Ended jobs, and as many ended development runs, that stay in memory; older ones are read from the records.
pub const ENDED_KEPT: usize = 512;
/// Ended runs that stay in memory.
pub const ENDED_RUNS_KEPT: usize = 64;
/// Idempotency keys that stay in memory once they are answered; older ones are looked up in the records (rule A13). As
/// many ended jobs answer for the same asked again in their run; what older ones found is given again as a verdict is.
pub const KEYS_REMEMBERED: usize = 4_096;
/// Entries of the log after which a checkpoint is written, or as many as are open where those are more: a start reads
/// the checkpoint and what came after it.
pub const CHECKPOINT_EVERY: u64 = 2_048;
/// Records up to this size are looked through page by page at each start, in bytes: it takes well under a second.
pub const RECORDS_CHECKED_BYTES: u64 = 64 * 1024 * 1024;
/// What a data folder may hold of what can be pruned, in bytes, unless THERMITE_KEEP says otherwise.
pub const KEEP_BYTES: u64 = 20 * 1024 * 1024 * 1024;
/// The room below which a disk takes no new work, in bytes, unless THERMITE_DISK_FLOOR says otherwise: what the work
/// under way can still write down.
pub const DISK_FLOOR_BYTES: u64 = 256 * 1024 * 1024;
/// How often the room on the data folder's disk is looked at.
pub const DISK_LOOK_EVERY: Span = Span::seconds(2);
/// How often the data folder is held against its byte budget.
pub const BUDGET_LOOK_EVERY: Span = Span::seconds(60);
/// Rows that one transaction of pruning takes: appends wait no longer than it.
pub const PRUNE_ROWS_MAX: u32 = 512;
/// How long pruning the git store may take in one go; submits wait for it.
pub const STORE_PRUNE_MAX: Span = Span::seconds(30);
/// How long a commit stays in the git store that nothing refers to: what is being submitted refers to it soon.
pub const STORE_KEPT_MIN: Span = Span::hours(1);

/// The largest line of the input log read, in bytes: the state of a judge queue with all jobs that may wait.
pub const INPUT_LINE_BYTES_MAX: usize = 256 * 1024 * 1024;
/// The size at which a segment of the input log is closed and the next begins, in bytes.
pub const INPUT_SEGMENT_BYTES: u64 = 8 * 1024 * 1024;
/// The input log kept, in bytes of all its segments; the oldest go first.
pub const INPUT_LOG_BYTES_MAX: u64 = 128 * 1024 * 1024;
/// How long entries of the input log are gathered before the thread that writes them waits to be woken.
pub const INPUT_LOG_GATHERED: Span = Span::millis(5);
/// Entries of the input log on their way to the disk; beyond them entries are left out, counted, and a segment begins.
pub const INPUT_LOG_WAITING_MAX: usize = 8_192;

/// How long a frame on the bus may be, in bytes, either way: below the 1 MiB that every NATS server takes unless told
/// otherwise, with room for subjects and headers.
pub const WIRE_FRAME_BYTES_MAX: usize = 1_000_000;
/// How often the bus's server is pinged: a paused one is noticed after three. The client's own minute means minutes.
pub const BUS_PING_EVERY: Span = Span::seconds(2);
/// How long opening a connection to the bus may take before it is tried anew.
pub const BUS_CONNECT_MAX: Span = Span::seconds(5);
/// The first wait before the bus is tried again, and by how much each further one is longer; up to a quarter is luck,
/// so that runners do not all come back in one moment.
pub const BUS_RECONNECT_STEP: Span = Span::millis(200);
/// The longest wait before the bus is tried again (rule E11): there is no last try.
pub const BUS_RECONNECT_MOST: Span = Span::seconds(2);
/// How often an ask that nobody listens for is tried again within [`RUNNER_ASK_MAX`]: who has just connected is heard of
/// by the server a moment later.
pub const BUS_NOBODY_LISTENS_RETRY: Span = Span::millis(500);
/// How long one ask for bulk (a chunk of a bundle) may take on its own connection.
pub const BULK_ASK_MAX: Span = Span::seconds(20);
/// Asks that a runner answers at once; what comes beyond waits its turn.
pub const BUS_ASKS_AT_ONCE: usize = 32;
/// How long control may take to answer a supervisor.
pub const CONTROL_ANSWER_MAX: Span = Span::seconds(10);
/// The first wait before control is asked again for rights on the bus; each further one is twice as long.
pub const CONTROL_RETRY_LEAST: Span = Span::seconds(2);
/// The longest wait before control is asked again for rights on the bus.
pub const CONTROL_RETRY_MOST: Span = Span::seconds(30);

/// How long a frame between supervisor and harness may be, in bytes: a stage's longest report with room to spare.
pub const HARNESS_FRAME_BYTES_MAX: usize = 16 * 1024 * 1024;
/// How long a harness waits for its supervisor's first words, and it for the harness's: who connects and says nothing
/// does not keep others out.
pub const HARNESS_HELLO_MAX: Span = Span::seconds(5);
/// How long a supervisor waits before it tries its harness again.
pub const HARNESS_RETRY_EVERY: Span = Span::millis(200);
/// How long a supervisor waits for a harness that has gone before it gives up a proof (rule A7): one that was killed is
/// started anew and sweeps first.
pub const HARNESS_BACK_MAX: Span = Span::seconds(9);
/// How often a supervisor tells its harness that it is there, and hears the same of it.
pub const HARNESS_ALIVE_EVERY: Span = Span::seconds(2);
/// After this long without a word from its supervisor a harness ends all that runs, and a supervisor leaves a harness that
/// says nothing: a supervisor that is stopped cannot end work whose lease runs out (rule E11), and this comes before.
pub const HARNESS_SILENCE_MAX: Span = Span::seconds(20);
/// How long a harness rests before it sweeps again where something is left.
pub const HARNESS_SWEEP_EVERY: Span = Span::seconds(1);
/// How long a line of a runner's journal may be, in bytes.
pub const JOURNAL_LINE_BYTES_MAX: usize = 8 * 1024 * 1024;
