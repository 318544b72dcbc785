//! What happens, as server-sent events.
//!
//! Every event has an id `LIFE-NUMBER`; numbers rise by one in one life of the rig, and every start is a new life. A
//! reader that comes back with `Last-Event-ID` gets what it missed, as far back as events are kept (4,096 of them, 4
//! MiB). What is lost to it is said by an event `missed`, so that it looks at the rig anew. All readers read from one
//! ring; a slow one costs no memory, it misses.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use actix_web::web::{Bytes, Data};
use actix_web::{HttpRequest, HttpResponse};
use futures_util::stream;
use serde::Deserialize;
use thermite_actors::rig::Rig;
use thermite_actors::view::{RigEvent, RigHappening};
use thermite_core::ids::{LaneId, RunId};
use thermite_core::limits;
use thermite_core::log::LogEntry;
use thermite_core::time::Span;
use tokio::sync::{broadcast, watch};
use utoipa::{IntoParams, ToSchema};

use super::access::Asker;
use super::problem::Problem;
use super::request::Query;
use super::{Door, request};

/// The events kept for readers.
pub(super) struct EventRing {
    life: String,
    kept: Mutex<Kept>,
    newest: watch::Sender<u64>,
    readers: AtomicUsize,
}

#[derive(Default)]
struct Kept {
    events: VecDeque<KeptEvent>,
    bytes: usize,
}

struct KeptEvent {
    id: u64,
    text: Bytes,
    /// The lane whose matter alone it is, where it says what that lane asked to run.
    lane: Option<(RunId, LaneId)>,
}

/// One of the readers there may be at once.
struct Seat(Arc<EventRing>);

/// How far a reader has read.
struct Reader {
    seat: Seat,
    /// The last event it has; 0 before the first.
    last: u64,
    newest: watch::Receiver<u64>,
    over: watch::Receiver<bool>,
    greeting: Option<Bytes>,
    /// The lane that reads, where a lane does.
    lane: Option<(LaneId, Option<RunId>)>,
    until: Option<Instant>,
}

/// How long.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct HowLong {
    /// Ends the stream after that many milliseconds; without it the stream ends with the rig or its token.
    #[param(minimum = 0, maximum = 86_400_000)]
    for_ms: Option<u64>,
}

/// One event of the stream, as readers of server-sent events get it.
#[derive(ToSchema)]
#[expect(dead_code, reason = "the description of what is written as text")]
pub(super) struct SentEvent {
    /// `LIFE-NUMBER`: the rig's life and the event's number in it, for `Last-Event-ID`.
    #[schema(pattern = "^[0-9a-f]{32}-[0-9]+$")]
    id: Option<String>,
    /// `recorded`, `stage`, `dev_run`, `device`, `alarm`: a `RigEvent`; `ready`: a fresh stream; `missed`: how many were
    /// lost.
    event: String,
    /// As JSON: a `RigEvent`, `{}` with `ready`, `{"missed": number or null}` with `missed`.
    #[schema(content_media_type = "application/json")]
    data: String,
    /// How long to wait before coming back, in milliseconds.
    retry: Option<u64>,
}

impl EventRing {
    /// A ring that follows `rig`'s events. Must be called inside an actix system.
    pub(super) fn follow(rig: &Rig) -> Arc<EventRing> {
        let ring = EventRing::empty();
        let mut events = rig.events();
        let filled = Arc::clone(&ring);
        actix_web::rt::spawn(async move {
            loop {
                match events.recv().await {
                    Ok(event) => filled.keep(&event),
                    // The gap shows in the numbers.
                    Err(broadcast::error::RecvError::Lagged(_)) => {}
                    Err(broadcast::error::RecvError::Closed) => break,
                }
            }
        });
        ring
    }

    /// How many readers there are.
    pub(super) fn readers(&self) -> usize {
        self.readers.load(Ordering::Relaxed)
    }

    fn empty() -> Arc<EventRing> {
        Arc::new(EventRing {
            life: uuid::Uuid::now_v7().simple().to_string(),
            kept: Mutex::default(),
            newest: watch::Sender::new(0),
            readers: AtomicUsize::new(0),
        })
    }

    fn keep(&self, event: &RigEvent) {
        let json = serde_json::to_string(event).expect("an event has JSON");
        let text = format!("id: {}-{}\nevent: {}\ndata: {json}\n\n", self.life, event.id, name(&event.what));
        let mut kept = self.kept();
        kept.bytes += text.len();
        kept.events.push_back(KeptEvent { id: event.id, text: Bytes::from(text), lane: of_one_lane(&event.what) });
        while kept.events.len() > limits::EVENTS_KEPT || kept.bytes > limits::EVENTS_KEPT_BYTES_MAX {
            let Some(oldest) = kept.events.pop_front() else { break };
            kept.bytes -= oldest.text.len();
        }
        drop(kept);
        self.newest.send_replace(event.id);
    }

    /// The next event after `last`, and how many were lost before it. What is another lane's matter has no text for
    /// `reader`.
    fn after(&self, last: u64, reader: Option<(LaneId, Option<RunId>)>) -> Option<(u64, Option<Bytes>, u64)> {
        let kept = self.kept();
        let at = kept.events.partition_point(|event| event.id <= last);
        let KeptEvent { id, text, lane } = kept.events.get(at)?;
        let is_anothers = match (reader, lane) {
            (Some((reader, of_run)), Some((run, lane))) => {
                reader != *lane || of_run.is_some_and(|of_run| of_run != *run)
            }
            _ => false,
        };
        Some((*id, (!is_anothers).then(|| text.clone()), id - last - 1))
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        // Keeping an event cannot panic half-way.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn seat(self: &Arc<Self>) -> Option<Seat> {
        let seat = Seat(Arc::clone(self));
        let taken = self.readers.fetch_add(1, Ordering::Relaxed);
        (taken < limits::EVENT_READERS_MAX).then_some(seat)
    }

    /// Where a reader goes on: the number after this life's name. Another life's, or what is no id, is `Err`.
    fn resumed(&self, id: &str) -> Result<u64, ()> {
        let (life, number) = id.rsplit_once('-').ok_or(())?;
        if life == self.life { number.parse().map_err(drop) } else { Err(()) }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.readers.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What happens from here on, or after `Last-Event-ID`, as server-sent events.
///
/// Events `recorded`, `stage`, `dev_run` and `device` carry a `RigEvent`; `ready` opens a fresh stream; `missed` says
/// how many events were lost to this reader (`null` where that cannot be told: the rig was started anew). A lane's token
/// is not shown what other lanes asked to run.
#[utoipa::path(get, path = "/v1/events", operation_id = "events", tag = "rig",
    params(HowLong, ("Last-Event-ID" = Option<String>, Header, description = "the last event that the reader has")),
    responses(
        (status = 200, description = "the events as they come", content_type = "text/event-stream", body = SentEvent),
    )
)]
pub(super) async fn stream(
    request: HttpRequest,
    door: Data<Door>,
    asker: Asker,
    Query(how_long): Query<HowLong>,
) -> Result<HttpResponse, Problem> {
    let most = Span::hours(24);
    let for_ms = how_long.for_ms.map(|ms| request::within("for_ms", ms, 0, most.as_millis())).transpose()?;
    let ring = &door.events;
    let seat = ring.seat().ok_or_else(|| Problem::too_many_readers(limits::EVENT_READERS_MAX))?;
    let newest = ring.newest.subscribe();
    let here = *newest.borrow();
    let resumed = request.headers().get("last-event-id").and_then(|id| id.to_str().ok());
    let ready = format!("retry: 1000\nid: {}-{here}\nevent: ready\ndata: {{}}\n\n", ring.life);
    let (last, greeting) = match resumed.map(|id| ring.resumed(id)) {
        None => (here, ready),
        Some(Ok(last)) => (last.min(here), "retry: 1000\n\n".to_owned()),
        // Another life's reader cannot know how much it missed.
        Some(Err(())) => (here, format!("{ready}event: missed\ndata: {{\"missed\":null}}\n\n")),
    };
    let reader = Reader {
        seat,
        last,
        newest,
        over: door.over.clone(),
        greeting: Some(Bytes::from(greeting)),
        lane: asker.lane(),
        until: for_ms.map(|ms| Instant::now() + Span::millis(ms).to_std()),
    };
    let body = stream::unfold(reader, |mut reader| async move {
        let text = reader.next().await?;
        Some((Ok::<_, Infallible>(text), reader))
    });
    Ok(HttpResponse::Ok()
        .content_type("text/event-stream")
        .insert_header(("cache-control", "no-store"))
        .insert_header(("x-accel-buffering", "no"))
        .streaming(body))
}

impl Reader {
    /// What the reader is sent next; `None` ends the stream.
    async fn next(&mut self) -> Option<Bytes> {
        if let Some(greeting) = self.greeting.take() {
            return Some(greeting);
        }
        loop {
            self.newest.borrow_and_update();
            if let Some(text) = self.take() {
                return Some(text);
            }
            if *self.over.borrow() || self.until.is_some_and(|until| until <= Instant::now()) {
                return None;
            }
            let keep_alive = Instant::now() + limits::EVENTS_KEEP_ALIVE.to_std();
            let wake = self.until.map_or(keep_alive, |until| until.min(keep_alive));
            tokio::select! {
                _ = self.newest.changed() => {}
                _ = self.over.wait_for(|over| *over) => {}
                () = tokio::time::sleep_until(wake.into()) => {
                    return self.until.is_none_or(|until| Instant::now() < until).then(|| Bytes::from_static(b":\n\n"));
                }
            }
        }
    }

    fn take(&mut self) -> Option<Bytes> {
        loop {
            let (id, text, lost) = self.seat.0.after(self.last, self.lane)?;
            let from_the_start = std::mem::replace(&mut self.last, id) == 0;
            // Nothing that a reader could have had was before the first event that the door has seen.
            let lost = if from_the_start { 0 } else { lost };
            let missed = (lost > 0).then(|| format!("event: missed\ndata: {{\"missed\":{lost}}}\n\n"));
            match (missed, text) {
                (None, None) => {}
                (None, Some(text)) => return Some(text),
                (Some(missed), None) => return Some(Bytes::from(missed)),
                (Some(missed), Some(text)) => return Some(Bytes::from([missed.as_bytes(), &text[..]].concat())),
            }
        }
    }
}

/// What only the lane that asked for it may read: a command with its environment.
fn of_one_lane(what: &RigHappening) -> Option<(RunId, LaneId)> {
    let RigHappening::Recorded { fact } = what else { return None };
    let LogEntry::DevRunAsked { spec, .. } = &**fact else { return None };
    Some((spec.run, spec.lane))
}

fn name(what: &RigHappening) -> &'static str {
    match what {
        RigHappening::Recorded { .. } => "recorded",
        RigHappening::Stage { .. } => "stage",
        RigHappening::DevRun { .. } => "dev_run",
        RigHappening::Device { .. } => "device",
        RigHappening::Alarm { .. } => "alarm",
    }
}

#[cfg(test)]
mod tests {
    use thermite_core::dev_run::DevRunEnd;
    use thermite_core::ids::DevRunId;

    use super::*;

    fn event(id: u64, bytes: usize) -> RigEvent {
        let end = DevRunEnd::NotStarted { why: "x".repeat(bytes) };
        let fact = Arc::new(LogEntry::DevRunEnded { dev_run: DevRunId(uuid::Uuid::nil()), end });
        RigEvent { id, wall_ms: 0, what: RigHappening::Recorded { fact } }
    }

    #[test]
    fn a_reader_that_was_away_too_long_is_told_how_many_it_missed() {
        let ring = EventRing::empty();
        let last = limits::EVENTS_KEPT as u64 + 10;
        (1..=last).for_each(|id| ring.keep(&event(id, 1)));

        let (id, _, lost) = ring.after(3, None).unwrap();

        assert_eq!((id, lost), (11, 7));
        assert_eq!(ring.after(last, None), None);
        assert_eq!(*ring.newest.borrow(), last);
    }

    #[test]
    fn a_gap_in_the_numbers_is_told_too() {
        let ring = EventRing::empty();
        [1, 2, 6].iter().for_each(|id| ring.keep(&event(*id, 1)));

        assert_eq!(ring.after(2, None).map(|(id, _, lost)| (id, lost)), Some((6, 3)));
    }

    #[test]
    fn what_is_kept_is_bounded_in_bytes() {
        let ring = EventRing::empty();
        (1..=20).for_each(|id| ring.keep(&event(id, limits::EVENTS_KEPT_BYTES_MAX / 4)));

        let kept = ring.kept();

        assert!(kept.bytes <= limits::EVENTS_KEPT_BYTES_MAX, "{} bytes are kept", kept.bytes);
        assert_eq!(kept.bytes, kept.events.iter().map(|event| event.text.len()).sum::<usize>());
        assert_eq!(kept.events.back().map(|event| event.id), Some(20));
    }

    #[test]
    fn a_seat_is_given_back() {
        let ring = EventRing::empty();
        let seats: Vec<_> = (0..limits::EVENT_READERS_MAX).map(|_| ring.seat().unwrap()).collect();

        assert!(ring.seat().is_none());
        drop(seats);
        assert!(ring.seat().is_some());
    }
}
