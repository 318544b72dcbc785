//! Where model files come from (rule E4): `file://`, `https://` and `s3://`, by `object_store`.
//!
//! Each is read from an offset, so that what was cut goes on. Who may read an S3 bucket, and by which endpoint, stands in
//! the environment's `AWS_*` variables: `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_REGION`, `AWS_ENDPOINT`, and for a
//! public bucket `AWS_SKIP_SIGNATURE=true`. Unencrypted `http://` is for this machine alone; what it gives is held against the
//! kit's SHA-256 like everything else.

use std::io;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::LocalBoxFuture;
use object_store::aws::AmazonS3Builder;
use object_store::http::HttpBuilder;
use object_store::local::LocalFileSystem;
use object_store::path::Path as Place;
use object_store::{ClientOptions, Error, GetOptions, GetRange, ObjectStore, RetryConfig};

use thermite_actors::host::models::{MODELS, ModelBytes, ModelSource, Models, SourceFault};

/// How long connecting to a source may take.
const CONNECT_MAX: Duration = Duration::from_secs(20);

/// The model files of this machine, kept in this folder and fetched from where kits say.
///
/// # Errors
/// Where the folder cannot be made.
pub fn on_this_machine(folder: &Path, keep: u64) -> io::Result<Models> {
    with_s3(
        folder,
        keep,
        std::env::vars_os().filter_map(|(name, value)| {
            Some((name.into_string().ok().filter(|name| name.starts_with("AWS_"))?, value.into_string().ok()?))
        }),
    )
}

/// The same with other `AWS_*` variables than the environment's.
///
/// # Errors
/// Where the folder cannot be made.
pub fn with_s3(folder: &Path, keep: u64, s3: impl IntoIterator<Item = (String, String)>) -> io::Result<Models> {
    // The first wins, and it is the same one everywhere: there is one TLS in this program.
    let _installed_already = rustls::crypto::ring::default_provider().install_default();
    Models::open(&folder.join(MODELS), keep, Rc::new(Sources { s3: s3.into_iter().collect() }))
}

/// The three kinds of source.
struct Sources {
    /// How S3 buckets are read: `AWS_*` by name.
    s3: Vec<(String, String)>,
}

impl ModelSource for Sources {
    fn open(&self, url: &str, from: u64) -> LocalBoxFuture<'static, Result<ModelBytes, SourceFault>> {
        let store = self.store_of(url);
        Box::pin(async move {
            let (store, place) = store?;
            let range = (from > 0).then_some(GetRange::Offset(from));
            let options = GetOptions { range, ..GetOptions::default() };
            let found = store.get_opts(&place, options).await.map_err(|error| fault_of(&error))?;
            let bytes = found.into_stream().map(|next| match next {
                Ok(bytes) => Ok(Vec::from(bytes)),
                Err(error) => Err(SourceFault::Cut(said(&error))),
            });
            Ok(bytes.boxed_local())
        })
    }
}

impl Sources {
    /// The store that a URL is in, and its place there.
    fn store_of(&self, url: &str) -> Result<(Box<dyn ObjectStore>, Place), SourceFault> {
        let odd = |why: String| SourceFault::Missing(format!("{url} cannot be read: {why}"));
        let (scheme, rest) = url.split_once("://").ok_or_else(|| odd("it is no URL".to_owned()))?;
        let (host, path) = rest.split_once('/').ok_or_else(|| odd("it names no file".to_owned()))?;
        let place = Place::from_url_path(path).map_err(|error| odd(error.to_string()))?;
        // Cuts are gone on with from where they stand, by whoever asks; here a server that is busy for a moment is asked again.
        let retry = RetryConfig { max_retries: 2, retry_timeout: Duration::from_secs(30), ..RetryConfig::default() };
        let client = ClientOptions::new().with_timeout_disabled().with_connect_timeout(CONNECT_MAX);
        let store: Box<dyn ObjectStore> = match scheme {
            "file" => Box::new(LocalFileSystem::new()),
            "http" | "https" => {
                let client = client.with_allow_http(scheme == "http");
                let store = HttpBuilder::new().with_url(format!("{scheme}://{host}"));
                let store = store.with_client_options(client).with_retry(retry).build();
                Box::new(store.map_err(|error| odd(said(&error)))?)
            }
            "s3" => {
                let mut store = AmazonS3Builder::new().with_client_options(client).with_bucket_name(host);
                for (name, value) in &self.s3 {
                    // Others of that beginning are for other programs.
                    if let Ok(key) = name.to_ascii_lowercase().parse() {
                        store = store.with_config(key, value);
                    }
                }
                let store = store.with_retry(retry).build();
                Box::new(store.map_err(|error| odd(said(&error)))?)
            }
            _ => return Err(odd("its kind is not known".to_owned())),
        };
        Ok((store, place))
    }
}

/// What a source's answer means for whoever goes on.
fn fault_of(error: &Error) -> SourceFault {
    let said = said(error);
    // Told apart by words alone: what is behind these errors is the crate's own, and a web server without ranges is an
    // operation that is not supported like any other.
    if ["non-partial response", "Range request not supported"].iter().any(|words| said.contains(words)) {
        return SourceFault::NoOffset(said);
    }
    match error {
        Error::NotFound { .. }
        | Error::InvalidPath { .. }
        | Error::NotSupported { .. }
        | Error::NotImplemented { .. }
        | Error::PermissionDenied { .. }
        | Error::Unauthenticated { .. } => SourceFault::Missing(said),
        _ => SourceFault::Cut(said),
    }
}

/// An error with what caused it, on one line and cut.
fn said(error: &Error) -> String {
    let text = error.to_string();
    let line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    line.chars().take(400).collect()
}
