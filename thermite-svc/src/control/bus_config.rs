//! The configuration of the bus's server that goes with an operator: `thermite control bus-config` prints it.

use std::fmt::Write as _;
use std::path::PathBuf;

use super::authority::{Account, KeyFault, Operator, Second};

/// What the configuration says beside the operator's own parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BusPlace {
    /// Where the server listens, such as `0.0.0.0:4222`.
    pub listen: String,
    /// The folder where it keeps accounts: what control sent it outlives its restarts.
    pub accounts: PathBuf,
    /// Its certificate.
    pub certificate: PathBuf,
    /// Its certificate's key.
    pub key: PathBuf,
}

/// The text of the server's configuration file. What stands in it is no secret; `known` are accounts that it knows
/// before control sends them. `at` must be before the second of what control sends later: the younger wins at the
/// server's start.
///
/// # Errors
/// Where the operator's key cannot sign.
pub fn bus_config(operator: &Operator, place: &BusPlace, known: &[&Account], at: Second) -> Result<String, KeyFault> {
    let BusPlace { listen, accounts, certificate, key } = place;
    let system = operator.system_account();
    let mut preload = format!("    {system}: {}\n", operator.system(at)?);
    for account in known {
        let jwt = operator.account(account, at)?;
        writeln!(preload, "    {}: {jwt}", account.key.public_key()).expect("writing to a string cannot fail");
    }
    Ok(format!(
        "# The bus of Thermite, for nats-server; from `thermite control bus-config`. No secret is in here.\n\
         listen: {listen:?}\n\
         \n\
         tls {{\n    cert_file: {certificate:?}\n    key_file: {key:?}\n}}\n\
         \n\
         # Who may connect, and to what, is signed by this operator; control has its key.\n\
         operator: {}\n\
         system_account: {system}\n\
         \n\
         # Accounts as control sends them, kept by the server.\n\
         resolver {{\n    type: full\n    dir: {accounts:?}\n    allow_delete: false\n    interval: \"2m\"\n}}\n\
         resolver_preload {{\n{preload}}}\n",
        operator.itself(at)?
    ))
}
