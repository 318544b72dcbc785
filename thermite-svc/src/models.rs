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
    // The first wins, and it is the same one everywhere: there is one TLS in this program.
    let _installed_already = rustls::crypto::ring::default_provider().install_default();
    Models::open(&folder.join(MODELS), keep, Rc::new(Sources))
}

/// The three kinds of source.
struct Sources;

impl ModelSource for Sources {
    fn open(&self, url: &str, from: u64) -> LocalBoxFuture<'static, Result<ModelBytes, SourceFault>> {
        let url = url.to_owned();
        Box::pin(async move {
            let (store, place) = store_of(&url)?;
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

/// The store that a URL is in, and its place there.
fn store_of(url: &str) -> Result<(Box<dyn ObjectStore>, Place), SourceFault> {
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
            // An endpoint without TLS must be allowed by name, as elsewhere: AWS_ALLOW_HTTP.
            let allows_http = std::env::var("AWS_ALLOW_HTTP").is_ok_and(|set| set.eq_ignore_ascii_case("true"));
            let store = AmazonS3Builder::from_env().with_bucket_name(host).with_retry(retry);
            let store = store.with_client_options(client.with_allow_http(allows_http)).build();
            Box::new(store.map_err(|error| odd(said(&error)))?)
        }
        _ => return Err(odd("its kind is not known".to_owned())),
    };
    Ok((store, place))
}

/// What a source's answer means for whoever goes on.
fn fault_of(error: &Error) -> SourceFault {
    let said = said(error);
    match error {
        Error::NotFound { .. }
        | Error::InvalidPath { .. }
        | Error::NotSupported { .. }
        | Error::NotImplemented { .. }
        | Error::PermissionDenied { .. }
        | Error::Unauthenticated { .. } => SourceFault::Missing(said),
        // Told apart by its words alone: the error behind it is the crate's own.
        _ if said.contains("non-partial response") => SourceFault::NoOffset(said),
        _ => SourceFault::Cut(said),
    }
}

/// An error with what caused it, on one line and cut.
fn said(error: &Error) -> String {
    let text = error.to_string();
    let line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    line.chars().take(400).collect()
}
