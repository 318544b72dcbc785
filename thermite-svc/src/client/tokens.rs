//! The tokens' part of the door.

use thermite_svc::server::tokens::{NewToken, Rotate, TokenMade};
use thermite_svc::tokens::{TokenId, TokenRow};

use super::{Client, Fault};

impl Client {
    /// All tokens, by name.
    pub(crate) fn tokens(&self) -> Result<Vec<TokenRow>, Fault> {
        self.all("/v1/tokens", |row: &TokenRow| row.token.to_string())
    }

    /// Makes a token. Not sent again where the connection broke: what was made then is in the listing.
    pub(crate) fn make_token(&self, new: &NewToken) -> Result<TokenMade, Fault> {
        self.send_once("/v1/tokens", new)
    }

    /// Makes another token in one's place.
    pub(crate) fn rotate_token(&self, token: &TokenId, rotate: Rotate) -> Result<TokenMade, Fault> {
        self.send_once(&format!("/v1/tokens/{token}/rotate"), &rotate)
    }

    /// Ends a token.
    pub(crate) fn revoke_token(&self, token: &TokenId) -> Result<(), Fault> {
        let url = format!("{}/v1/tokens/{token}", self.base);
        self.request(|| self.agent.delete(url).header("authorization", &self.bearer).call()).map(drop)
    }

    fn send_once(&self, path: &str, body: &impl serde::Serialize) -> Result<TokenMade, Fault> {
        let url = format!("{}{path}", self.base);
        let answer = self.request(|| self.agent.post(url).header("authorization", &self.bearer).send_json(body))?;
        self.read(path, answer)
    }
}
