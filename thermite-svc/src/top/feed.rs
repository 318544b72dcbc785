//! Reads the rig, on threads of its own: its view every second and after each event that changes it, its events as they
//! come. Both come back by themselves when the rig does; events go on after the last one that was read.

use std::io::BufRead;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use anyhow::Context;

use thermite_actors::view::{RigEvent, RigHappening};

use crate::client::{Client, Fault};

use super::Wake;
use super::screen::News;

/// How often the view is read where no event asks for it: waits run on.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How soon after one view the next is read.
const LOOK_PACE: Duration = Duration::from_millis(150);
/// How long a rig that is away is left alone.
const TRY_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Starts reading.
pub(super) fn start(client: &Client, wake: &Sender<Wake>) -> anyhow::Result<()> {
    let (stir, stirred) = channel();
    let (looker, look_wake) = (client.clone(), wake.clone());
    let look = move || look(&looker, &stirred, &look_wake);
    std::thread::Builder::new().name("look".to_owned()).spawn(look).context("failed to start reading")?;
    let (listener, wake) = (client.clone(), wake.clone());
    let listen = move || listen(&listener, &stir, &wake);
    std::thread::Builder::new().name("listen".to_owned()).spawn(listen).context("failed to start listening")?;
    Ok(())
}

fn look(client: &Client, stirred: &Receiver<()>, wake: &Sender<Wake>) {
    loop {
        let seen = client.again().and_then(|client| Ok((client.base().to_owned(), client.rig()?)));
        let news = match seen {
            Ok((url, view)) => {
                let _nobody_waits = wake.send(Wake::News(News::At(url)));
                News::View(Box::new(view))
            }
            Err(fault) => News::Away(why(&fault)),
        };
        if wake.send(Wake::News(news)).is_err() {
            return;
        }
        std::thread::sleep(LOOK_PACE);
        match stirred.recv_timeout(LOOK_EVERY.saturating_sub(LOOK_PACE)) {
            // Many events are one reason to look.
            Ok(()) => while stirred.try_recv().is_ok() {},
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

fn listen(client: &Client, stir: &Sender<()>, wake: &Sender<Wake>) {
    let mut last = None;
    loop {
        // Where the rig is away, the one who looks says so.
        if let Ok(events) = client.again().and_then(|client| client.events(last.as_deref()))
            && read(events, &mut last, stir, wake).is_none()
        {
            return;
        }
        std::thread::sleep(TRY_AGAIN_AFTER);
    }
}

/// Reads one stream to its end; `None` where nobody wants to know any more.
fn read(events: impl BufRead, last: &mut Option<String>, stir: &Sender<()>, wake: &Sender<Wake>) -> Option<()> {
    let (mut kind, mut data, mut id) = (String::new(), String::new(), None);
    for line in events.lines().map_while(Result::ok) {
        if line.is_empty() {
            if let Some(id) = id.take() {
                *last = Some(id);
            }
            let news = news(&kind, &data);
            if changes_view(&news) {
                stir.send(()).ok()?;
            }
            if let Some(news) = news {
                wake.send(Wake::News(news)).ok()?;
            }
            kind.clear();
            data.clear();
        } else if let Some(value) = field(&line, "id") {
            id = Some(value.to_owned());
        } else if let Some(value) = field(&line, "event") {
            value.clone_into(&mut kind);
        } else if let Some(value) = field(&line, "data") {
            data.push_str(value);
        }
    }
    Some(())
}

fn field<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let value = line.strip_prefix(name)?.strip_prefix(':')?;
    Some(value.strip_prefix(' ').unwrap_or(value))
}

fn news(kind: &str, data: &str) -> Option<News> {
    if kind == "missed" {
        let missed: serde_json::Value = serde_json::from_str(data).ok()?;
        return Some(News::Missed(missed["missed"].as_u64()));
    }
    // A newer rig may tell of things that this program does not know.
    serde_json::from_str::<RigEvent>(data).ok().map(|event| News::Happened(Box::new(event)))
}

fn changes_view(news: &Option<News>) -> bool {
    match news {
        Some(News::Happened(event)) => match event.what {
            RigHappening::Stage { .. } => false,
            RigHappening::Recorded { .. }
            | RigHappening::DevRun { .. }
            | RigHappening::Device { .. }
            | RigHappening::Alarm { .. } => true,
        },
        Some(News::Missed(_)) => true,
        Some(News::At(_) | News::View(_) | News::Away(_) | News::Nothing) | None => false,
    }
}

fn why(fault: &Fault) -> String {
    match fault {
        Fault::Unreachable { why, .. } | Fault::NoRig { why, .. } => why.clone(),
        fault => fault.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_with_their_ids_and_what_was_missed() {
        let stream = "retry: 1000\nid: a-3\nevent: ready\ndata: {}\n\n:\n\nevent: missed\ndata: {\"missed\":7}\n\nid: a-4\nevent: \
                      recorded\ndata: {\"id\":4,\"wall_ms\":5,\"event\":\"recorded\",\"fact\":{\"entry\":\"rig_started\"}}\n\n\
                      id: a-5\nevent: unheard\ndata: {\"event\":\"of\"}\n\nid: a-6\nevent: cut";
        let (stir, stirred) = channel();
        let (wake, woken) = channel();
        let mut last = None;

        read(stream.as_bytes(), &mut last, &stir, &wake).unwrap();

        let heard: Vec<Wake> = woken.try_iter().collect();
        assert!(matches!(&heard[0], Wake::News(News::Missed(Some(7)))));
        assert!(matches!(&heard[1], Wake::News(News::Happened(event)) if event.id == 4));
        assert_eq!(heard.len(), 2);
        assert_eq!(stirred.try_iter().count(), 2);
        assert_eq!(last.as_deref(), Some("a-5"), "an event that was cut is asked for again");
    }
}
