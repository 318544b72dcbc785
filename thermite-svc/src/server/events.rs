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

use actix_web::web::{Bytes, Data};
use actix_web::{HttpRequest, HttpResponse};
use futures_util::stream;
use thermite_actors::rig::Rig;
use thermite_actors::view::{RigEvent, RigHappening};
use thermite_core::limits;
use tokio::sync::{broadcast, watch};

use super::Door;
use super::problem::Problem;

/// The events kept for readers.
pub(super) struct EventRing {
    life: String,
    kept: Mutex<Kept>,
    newest: watch::Sender<u64>,
    readers: AtomicUsize,
}

#[derive(Default)]
struct Kept {
    events: VecDeque<(u64, Bytes)>,
    bytes: usize,
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
        kept.events.push_back((event.id, Bytes::from(text)));
        while kept.events.len() > limits::EVENTS_KEPT || kept.bytes > limits::EVENTS_KEPT_BYTES_MAX {
            let Some((_, text)) = kept.events.pop_front() else { break };
            kept.bytes -= text.len();
        }
        drop(kept);
        self.newest.send_replace(event.id);
    }

    /// The next event after `last`, and how many were lost before it.
    fn after(&self, last: u64) -> Option<(u64, Bytes, u64)> {
        let kept = self.kept();
        let at = kept.events.partition_point(|(id, _)| *id <= last);
        let (id, text) = kept.events.get(at)?;
        Some((*id, text.clone(), id - last - 1))
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

pub(super) async fn stream(request: HttpRequest, door: Data<Door>) -> Result<HttpResponse, Problem> {
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
    let reader = Reader { seat, last, newest, over: door.over.clone(), greeting: Some(Bytes::from(greeting)) };
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
            if *self.over.borrow() {
                return None;
            }
            tokio::select! {
                _ = self.newest.changed() => {}
                _ = self.over.wait_for(|over| *over) => {}
                () = tokio::time::sleep(limits::EVENTS_KEEP_ALIVE.to_std()) => return Some(Bytes::from_static(b":\n\n")),
            }
        }
    }

    fn take(&mut self) -> Option<Bytes> {
        let (id, text, lost) = self.seat.0.after(self.last)?;
        let from_the_start = std::mem::replace(&mut self.last, id) == 0;
        // Nothing that a reader could have had was before the first event that the door has seen.
        if lost == 0 || from_the_start {
            return Some(text);
        }
        let mut both = format!("event: missed\ndata: {{\"missed\":{lost}}}\n\n").into_bytes();
        both.extend_from_slice(&text);
        Some(Bytes::from(both))
    }
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
    use thermite_core::log::LogEntry;

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

        let (id, _, lost) = ring.after(3).unwrap();

        assert_eq!((id, lost), (11, 7));
        assert_eq!(ring.after(last), None);
        assert_eq!(*ring.newest.borrow(), last);
    }

    #[test]
    fn a_gap_in_the_numbers_is_told_too() {
        let ring = EventRing::empty();
        [1, 2, 6].iter().for_each(|id| ring.keep(&event(*id, 1)));

        assert_eq!(ring.after(2).map(|(id, _, lost)| (id, lost)), Some((6, 3)));
    }

    #[test]
    fn what_is_kept_is_bounded_in_bytes() {
        let ring = EventRing::empty();
        (1..=20).for_each(|id| ring.keep(&event(id, limits::EVENTS_KEPT_BYTES_MAX / 4)));

        let kept = ring.kept();

        assert!(kept.bytes <= limits::EVENTS_KEPT_BYTES_MAX, "{} bytes are kept", kept.bytes);
        assert_eq!(kept.bytes, kept.events.iter().map(|(_, text)| text.len()).sum::<usize>());
        assert_eq!(kept.events.back().map(|(id, _)| *id), Some(20));
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
