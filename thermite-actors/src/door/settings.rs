//! What may be set while a rig runs: durable before it is told, in force when it is.

use thermite_core::settings::LiveSettings;
use thermite_core::time::Span;

use crate::outbox::Recall;
use crate::view::SettingsView;

use super::*;

/// Looks at the settings.
#[derive(Message)]
#[rtype(result = "Result<SettingsView, No>")]
pub(crate) struct LookAtSettings;

/// Sets them, where their revision is still the one that was read.
#[derive(Message)]
#[rtype(result = "Result<SettingsView, No>")]
pub(crate) struct ChangeSettings {
    pub(crate) settings: LiveSettings,
    pub(crate) read: Option<u64>,
}

/// What the rig was started with, and whose turn it is to set.
#[derive(Clone)]
pub(super) struct Given {
    pub(super) dev_run_wait: Span,
    pub(super) lanes_most: u8,
    /// One change at a time: each is checked against what the one before it made durable.
    pub(super) turn: Arc<tokio::sync::Mutex<()>>,
}

impl Given {
    /// How long a development run waits under these settings.
    pub(super) fn wait(&self, settings: LiveSettings) -> Span {
        settings.dev_run_wait.unwrap_or(self.dev_run_wait)
    }
}

async fn look(actors: &Actors, given: &Given) -> Result<SettingsView, No> {
    let read = Recall(Box::new(|history: &RigHistory| (history.settings, history.settings_revision)));
    let (settings, revision) = actors.outbox.send(read).await.map_err(|_| No::ending())?;
    Ok(SettingsView { revision, dev_run_wait: given.wait(settings), set: settings, lanes_most: given.lanes_most })
}

async fn change(actors: Actors, given: Given, msg: ChangeSettings) -> Result<SettingsView, No> {
    msg.settings.check()?;
    let _turn = given.turn.lock().await;
    let before = look(&actors, &given).await?;
    if msg.read.is_some_and(|read| read != before.revision) {
        return Err(Refusal::SettingsMoved { revision: before.revision }.into());
    }
    append(&actors.outbox, vec![LogEntry::SettingsChanged { settings: msg.settings }]).await?;
    // Each asking has its latest moment from its beginning: those that wait keep theirs.
    actors.dev_run_wait.set(given.wait(msg.settings));
    look(&actors, &given).await
}

impl Handler<LookAtSettings> for Door {
    type Result = ResponseFuture<Result<SettingsView, No>>;

    fn handle(&mut self, _: LookAtSettings, _: &mut Self::Context) -> Self::Result {
        let (actors, given) = (self.actors.clone(), self.given.clone());
        Box::pin(async move { look(&actors, &given).await })
    }
}

impl Handler<ChangeSettings> for Door {
    type Result = ResponseFuture<Result<SettingsView, No>>;

    fn handle(&mut self, msg: ChangeSettings, _: &mut Self::Context) -> Self::Result {
        if let Err(no) = self.open_for_work() {
            return Box::pin(std::future::ready(Err(no)));
        }
        Box::pin(change(self.actors.clone(), self.given.clone(), msg))
    }
}
