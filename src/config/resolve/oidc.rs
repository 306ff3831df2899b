//! `[console.oidc]`: checks of the OpenID provider and of the claims.

use super::super::raw::OidcConfig;
use super::super::settings::OpenIdSettings;
use super::SettingsResolver;
use super::key_path::KeyPath;
use super::url::{is_loopback_host, parse_base_url};
use penstock_storage::users::UserRole;

impl SettingsResolver<'_> {
    /// Resolves `[console.oidc]`; `None` after a mistake.
    pub fn resolve_oidc(&mut self, raw: &OidcConfig, spot: &KeyPath<'_>) -> Option<OpenIdSettings> {
        let like = "Write something like \"https://login.example.eu\".";
        let at = spot.child("issuer");
        let base = match parse_base_url(&raw.issuer) {
            Ok(base) if !base.tls && !is_loopback_host(&base.host) => {
                self.report_mistake(&at, "Passwords and tokens would travel without encryption.", like);
                None
            }
            Ok(base) => Some(base),
            Err((why, _)) => {
                // A URL with a password in it must not be shown.
                self.report_secret_mistake(&at, why, like);
                None
            }
        };
        let client_secret = match &raw.client_secret {
            Some(reference) => self.read_secret(reference, &spot.child("client_secret")).map(Some),
            None => Some(None),
        };
        let ca = match &raw.ca {
            Some(file) => self.check_ca_file(file, &spot.child("ca")).map(Some),
            None => Some(None),
        };
        let operators_url = match &raw.operators_url {
            Some(url) => self.resolve_public_url(url, &spot.child("operators_url")).map(Some),
            None => Some(None),
        };
        let scopes = self.resolve_scopes(&raw.scopes, &spot.child("scopes"));
        let roles = self.resolve_roles(raw, &spot.child("roles"));
        Some(OpenIdSettings {
            issuer: raw.issuer.as_str().into(),
            base: base?,
            client_id: raw.client_id.as_str().into(),
            client_secret: client_secret?,
            ca: ca?,
            name: raw.name.as_str().into(),
            scopes: scopes?,
            name_claim: raw.name_claim.as_str().into(),
            roles_claim: raw.roles_claim.as_str().into(),
            account_claim: raw.account_claim.as_deref().map(Into::into),
            roles: roles?,
            operators_url: operators_url?,
        })
    }

    fn resolve_scopes(&mut self, scopes: &[String], spot: &KeyPath<'_>) -> Option<Vec<Box<str>>> {
        let is_scope = |scope: &String| {
            let is_byte = |byte: u8| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\';
            scope.len() <= 255 && scope.bytes().all(is_byte)
        };
        if let Some(index) = scopes.iter().position(|scope| !is_scope(scope)) {
            let fix = "Write one scope per element, such as [\"profile\", \"email\"].";
            self.report_mistake(&spot.list_element(index), "It is not a scope.", fix);
            return None;
        }
        let further = scopes.iter().filter(|scope| *scope != "openid").map(|scope| scope.as_str().into());
        Some(std::iter::once("openid".into()).chain(further).collect())
    }

    /// Returns the claim values that give each role; `None` after a mistake: an empty value, or a value that is listed
    /// twice, for two roles or for the same role.
    fn resolve_roles(
        &mut self,
        raw: &OidcConfig,
        spot: &KeyPath<'_>,
    ) -> Option<Vec<(UserRole, Vec<Box<str>>)>> {
        let roles = [
            (UserRole::Admin, &raw.roles.admin),
            (UserRole::Operator, &raw.roles.operator),
            (UserRole::Finance, &raw.roles.finance),
            (UserRole::Viewer, &raw.roles.viewer),
            (UserRole::Account, &raw.roles.account),
        ];
        let mut known: Vec<&str> = Vec::new();
        for (role, values) in roles {
            for (index, value) in values.iter().enumerate() {
                let at = spot.child(role.name());
                let at = at.list_element(index);
                if value.is_empty() || known.contains(&value.as_str()) {
                    let why =
                        if value.is_empty() { "It is empty." } else { "The value gives a role already." };
                    self.report_mistake(&at, why, "Write each value of the claim once.");
                    return None;
                }
                known.push(value);
            }
        }
        let boxed = |values: &[String]| values.iter().map(|value| value.as_str().into()).collect();
        Some(roles.into_iter().map(|(role, values)| (role, boxed(values))).collect())
    }
}
