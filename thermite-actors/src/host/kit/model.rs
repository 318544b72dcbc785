//! `[[model]]` in a kit: files that its commands read and that no repository holds (rule E4).

use std::net::{Ipv4Addr, Ipv6Addr};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use thermite_core::contract::ModelFile;
use thermite_core::limits;

use super::{Fields, KitFault, Source, whole};

const MODEL_KEYS: [&str; 4] = ["name", "url", "sha256", "bytes"];
const NAME_EXPECTED: &str = "a file's name of 1 to 128 letters, digits, '.', '_' or '-', not beginning with '.'";
const URL_EXPECTED: &str = "a URL such as \"https://host/file\", \"s3://bucket/file\" or \"file:///folder/file\", without \
                            user, query or fragment; http:// is for 127.0.0.1, [::1] and localhost alone";
const HASH_EXPECTED: &str = "the file's SHA-256: 64 of 0-9 and a-f";

/// The model files that a kit lists.
pub(super) fn read(source: Source<'_>, value: &Spanned<DeValue<'_>>) -> Result<Vec<ModelFile>, KitFault> {
    let most = limits::MODELS_MAX;
    let wrong = |value| source.wrong("model", value, &format!("at most {most} tables, each [[model]]"));
    let items = value.get_ref().as_array().filter(|items| items.len() <= most).ok_or_else(|| wrong(value))?;
    let mut models: Vec<ModelFile> = Vec::new();
    for item in items.iter() {
        let table = item.get_ref().as_table().ok_or_else(|| wrong(item))?;
        let model = one(source, table)?;
        if models.iter().any(|known| known.name == model.name) {
            let what = format!("model.name {:?} is another model's too; expected names of their own", model.name);
            return Err(source.fault(Some(item.span().start), what));
        }
        models.push(model);
    }
    Ok(models)
}

fn one(source: Source<'_>, table: &DeTable<'_>) -> Result<ModelFile, KitFault> {
    let fields = Fields { source, table, prefix: "model." };
    fields.only(&MODEL_KEYS, "a model")?;
    let bytes = format!("how many bytes the file has, from 1 to {}", limits::MODEL_BYTES_MAX);
    Ok(ModelFile {
        name: fields.required("name", NAME_EXPECTED, |value| {
            let name = value.as_str()?;
            let fits = (1..=limits::MODEL_NAME_MAX).contains(&name.len())
                && !name.starts_with('.')
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
            fits.then(|| name.to_owned())
        })?,
        url: fields
            .required("url", URL_EXPECTED, |value| value.as_str().filter(|url| is_source(url)).map(str::to_owned))?,
        sha256: fields.required("sha256", HASH_EXPECTED, |value| value.as_str()?.parse().ok())?,
        bytes: fields.required("bytes", &bytes, |value| {
            let bytes = u64::try_from(whole(value)?).ok()?;
            (1..=limits::MODEL_BYTES_MAX).contains(&bytes).then_some(bytes)
        })?,
    })
}

/// Whether a URL is of a kind that model files come from. What is there decides only once it is fetched.
fn is_source(url: &str) -> bool {
    let plain = url.len() <= limits::MODEL_URL_BYTES_MAX
        && url.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'?' | b'#' | b'"' | b'<' | b'>' | b'\\'));
    let Some((scheme, rest)) = url.split_once("://").filter(|_| plain) else { return false };
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let has_file = !path.is_empty()
        && !path.ends_with('/')
        && path.split('/').all(|part| !part.is_empty() && !matches!(decoded(part).as_str(), "." | ".."))
        && !path.to_ascii_lowercase().contains("%00");
    let is_host = !host.is_empty() && !host.contains('@');
    match scheme {
        "file" => host.is_empty() && has_file,
        "https" => is_host && has_file,
        "http" => is_host && has_file && is_loopback(host),
        "s3" => {
            let is_bucket = host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte));
            is_host && is_bucket && has_file
        }
        _ => false,
    }
}

/// A part of a path, with its dots as dots.
fn decoded(part: &str) -> String {
    part.replace("%2e", ".").replace("%2E", ".")
}

/// Whether a host is this machine: what goes there unencrypted crosses no network.
fn is_loopback(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let literal = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
    name == "localhost"
        || name.parse::<Ipv4Addr>().is_ok_and(|address| address.is_loopback())
        || literal.is_some_and(|name| name.parse::<Ipv6Addr>().is_ok_and(|address| address.is_loopback()))
}
