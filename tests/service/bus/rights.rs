//! What rights on the bus let through, and how they end (rule E7).

use std::time::{Duration, Instant};

use async_nats::connection::State;
use async_nats::{Client, Event, ServerError};
use futures_util::StreamExt as _;
use thermite_svc::control::authority::{Rights, Second};
use tokio::sync::mpsc;

use super::nats::{Nats, RIG, now};
use crate::binary::PATIENCE;
use crate::support::block_on;

fn supervisor(name: &str) -> Rights {
    Rights::Supervisor(name.parse().unwrap())
}

#[test]
fn a_supervisor_answers_its_core_and_may_nothing_else() {
    let nats = Nats::start();
    block_on(async {
        let (told, mut events) = mpsc::unbounded_channel();
        let by = nats.admit(&supervisor("box-2"));
        let tell = move |event| {
            let _nobody_listens = told.send(event);
            std::future::ready(())
        };
        let runner = nats.options(&by).event_callback(tell).connect(nats.url()).await.unwrap();
        let core = nats.connect(&nats.admit(&Rights::Core)).await;
        let mut asks = runner.subscribe(format!("rig.{RIG}.runner.box-2.ask")).await.unwrap();
        let answering = runner.clone();
        let answered = tokio::spawn(async move {
            let ask = asks.next().await.unwrap();
            answering.publish(ask.reply.unwrap(), "here".into()).await.unwrap();
        });

        let answer = asked(&core, format!("rig.{RIG}.runner.box-2.ask")).await;
        answered.await.unwrap();
        assert_eq!(answer, "here");

        let others = [
            format!("rig.{RIG}.runner.box-1.ask"),
            format!("rig.{RIG}.runner.>"),
            format!("rig.{RIG}.settings"),
            "_INBOX.>".to_owned(),
            "$SYS.>".to_owned(),
            ">".to_owned(),
        ];
        for subject in others {
            let _sub = runner.subscribe(subject.clone()).await.unwrap();
            refused(&mut events, &subject).await;
        }
        let not_its_own = [
            format!("rig.{RIG}.runner.box-1.more"),
            format!("rig.{RIG}.report"),
            format!("rig.{RIG}.settings"),
            "_INBOX.another".to_owned(),
        ];
        for subject in not_its_own {
            runner.publish(subject.clone(), "forged".into()).await.unwrap();
            refused(&mut events, &subject).await;
        }
        assert_eq!(runner.connection_state(), State::Connected, "its own rights go on");
    });
}

#[test]
fn rights_taken_back_cut_the_connection_at_once_and_nobody_elses() {
    let mut nats = Nats::start();
    block_on(async {
        let by = nats.admit(&supervisor("box-2"));
        let system = nats.connect(&nats.system()).await;
        let other = nats.connect(&nats.admit(&supervisor("box-3"))).await;
        let (cut, mut cuts) = mpsc::unbounded_channel();
        let tell = move |event| {
            if matches!(event, Event::Disconnected) {
                let _nobody_listens = cut.send(Instant::now());
            }
            std::future::ready(())
        };
        let _runner = nats.options(&by).event_callback(tell).max_reconnects(1).connect(nats.url()).await.unwrap();

        nats.account().revocations.add(&by.user(), now());
        let since = Instant::now();
        nats.send_account(&system).await;
        let cut = tokio::time::timeout(PATIENCE, cuts.recv()).await.unwrap().unwrap();

        println!("cut {:?} after the account was sent", cut - since);
        assert!(nats.let_in(&by).await.is_none(), "it is let in again");
        assert_eq!(other.connection_state(), State::Connected);
        nats.kill();
        nats.start_again();
        assert!(nats.let_in(&by).await.is_none(), "a restart of the server gives the rights back");
        // The same key is let in by rights of a later second.
        let again = nats.admit_again(by.key, &supervisor("box-2"));
        let runner = nats.connect(&again).await;
        runner.flush().await.unwrap();
    });
}

#[test]
fn rights_that_end_cut_the_connection() {
    let nats = Nats::start();
    block_on(async {
        let by = nats.admit(&supervisor("box-2"));
        let (told, mut events) = mpsc::unbounded_channel();
        let tell = move |event| {
            let _nobody_listens = told.send(event);
            std::future::ready(())
        };
        // Given a day ago but for two seconds.
        let given = Second(now().0 - 86_400 + 2);
        let jwt = nats.account_user(&by, given);
        let by = super::nats::Credentials { key: by.key, jwt };
        let _runner = nats.options(&by).event_callback(tell).max_reconnects(1).connect(nats.url()).await.unwrap();

        let ended = async {
            while let Some(event) = events.recv().await {
                if let Event::ServerError(ServerError::Other(why)) = event {
                    return why;
                }
            }
            panic!("no word of the end");
        };
        let why = tokio::time::timeout(PATIENCE, ended).await.unwrap();
        assert!(why.to_lowercase().contains("expired"), "{why}");
        // The server counts in whole seconds: within the last one it still lets in.
        let began = Instant::now();
        while nats.let_in(&by).await.is_some() {
            assert!(began.elapsed() < PATIENCE, "rights that have ended let in");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
}

#[test]
fn one_that_stands_still_or_is_killed_comes_back_with_its_accounts() {
    let mut nats = Nats::start();
    block_on(async {
        let core = nats.connect(&nats.admit(&Rights::Core)).await;
        nats.pause();
        let mut flush = Box::pin(core.flush());
        assert!(tokio::time::timeout(Duration::from_millis(200), &mut flush).await.is_ok());
        nats.go_on();
        asked_itself(&core).await;
        nats.kill();
        nats.start_again();
        let core = nats.connect(&nats.admit(&Rights::Core)).await;
        asked_itself(&core).await;
    });
}

async fn asked_itself(core: &Client) {
    let subject = format!("rig.{RIG}.runner.itself.ask");
    let mut asks = core.subscribe(subject.clone()).await.unwrap();
    let answering = core.clone();
    let answered = tokio::spawn(async move {
        let ask = asks.next().await.unwrap();
        answering.publish(ask.reply.unwrap(), "here".into()).await.unwrap();
    });
    // Subscribing and asking go out in order on one connection; a core publishes within its rig alone, so the answer
    // goes there too.
    let inbox = format!("rig.{RIG}.answers.{}", uuid::Uuid::now_v7());
    let mut answers = core.subscribe(inbox.clone()).await.unwrap();
    core.publish_with_reply(subject, inbox, "ask".into()).await.unwrap();
    let answer = tokio::time::timeout(PATIENCE, answers.next()).await.unwrap().unwrap();
    assert_eq!(answer.payload, "here");
    answered.await.unwrap();
}

/// The answer, once somebody is there to give it.
async fn asked(core: &Client, subject: String) -> String {
    let began = Instant::now();
    loop {
        match core.request(subject.clone(), "ask".into()).await {
            Ok(answer) => return String::from_utf8(answer.payload.to_vec()).unwrap(),
            Err(error) => assert!(began.elapsed() < PATIENCE, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Waits for the server's word that this subject is not for whom it is.
async fn refused(events: &mut mpsc::UnboundedReceiver<Event>, subject: &str) {
    let refused = async {
        while let Some(event) = events.recv().await {
            if let Event::ServerError(error) = event {
                let said = error.to_string().to_lowercase();
                assert!(said.contains("permissions violation") && said.contains(&subject.to_lowercase()), "{said}");
                return;
            }
        }
        panic!("no word about {subject}");
    };
    tokio::time::timeout(PATIENCE, refused).await.unwrap_or_else(|_| panic!("{subject} was let through"));
}
