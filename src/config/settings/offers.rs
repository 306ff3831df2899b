//! Models, providers, and offers that connect them.

use super::super::secret::SecretText;
use super::{HttpVersion, PowerContractEvidence, TlsVersion};
use penstock_catalog::CatalogModel as Card;
use penstock_core::{
    Dialect, ImageSize, ModelKind, OfferCapabilities, ProviderAdapter, RerankScoreTransform,
};
use penstock_footprint::grid::GridRow;
use penstock_footprint::{EnergyProfile, OfferFactors};
use penstock_pricing::Tariff;
use penstock_tokens::engine;
use penstock_tokens::{PublishedEncoding, TokenCounter};
use rust_decimal::Decimal;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// JSON members as pairs: name, and JSON text of the value.
pub type JsonFields = Vec<(Box<str>, Box<str>)>;

/// A model of the catalogue with all its settings.
#[derive(Clone, Debug)]
pub struct ModelSettings {
    /// Public part of the model, shown to clients; its prices are in
    /// [`Settings::catalog_models`](super::Settings::catalog_models).
    pub card: Card,
    /// Kind of work that the model does.
    pub kind: ModelKind,
    /// Ids of the models that answer instead if all offers fail, in order of preference. They exist and form no cycle.
    pub fallbacks: Vec<Box<str>>,
    /// True if another provider continues a stream that breaks.
    pub rescue: bool,
    /// True if a conversation is routed to the offer that has its beginning in the prompt cache.
    pub affinity: bool,
    /// Maximum number of choices of one request to a provider; `None` if it is not configured.
    pub max_n: Option<u32>,
    /// Conversion of the scores of a reranking model to the range 0 to 1.
    pub score: RerankScoreTransform,
    /// Meaning of token ids in a request to an embedding model.
    pub token_ids: TokenIdPolicy,
    /// Presets by name: JSON members that are added to a request if the client left them out.
    pub presets: BTreeMap<Box<str>, JsonFields>,
    /// Supported image sizes, the default first; if empty, any size is supported.
    pub image_sizes: Vec<ImageSize>,
    /// Energy that the model uses.
    pub energy: EnergyProfile,
    /// Tokenizer; if `None`, token counts are estimates.
    pub tokenizer: Option<ExactTokenizer>,
    /// Tariff of offers without their own prices; also has the billing unit.
    pub tariff: Tariff,
    /// Later tariffs, each with the Unix second from which it applies, ascending.
    pub later_tariffs: Vec<(u64, Tariff)>,
}

/// Meaning of token ids in the input of an embedding request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenIdPolicy {
    /// Ids of a published vocabulary, which are converted to text.
    Text(PublishedEncoding),
    /// Ids of the model itself, which are sent to the provider unchanged.
    Native,
    /// Token ids in the input are refused.
    Refuse,
}

/// Exact token counter of a model.
#[derive(Clone)]
pub struct ExactTokenizer(pub Arc<TokenCounter>);

impl std::fmt::Debug for ExactTokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tokenizer")
    }
}

/// An operator that runs models at one location.
#[derive(Clone, Debug)]
pub struct Provider {
    /// Index of the provider in [`Settings::providers`](super::Settings::providers).
    pub index: usize,
    /// Unique name of the provider, which responses contain as `environment_impact.provider_id`.
    pub id: Box<str>,
    /// Company that runs the provider.
    pub operator: Box<str>,
    /// Location of the provider's machines.
    pub location: ProviderLocation,
    /// Base URL of the provider's API.
    pub base_url: BaseUrl,
    /// API key for the provider; if `None`, requests have no authentication.
    pub api_key: Option<SecretText>,
    /// Dialects that the provider supports, the preferred first; never empty.
    pub dialects: Vec<Dialect>,
    /// Timeouts of requests to the provider.
    pub timeouts: TimeoutSettings,
    /// Settings of the active health check; `None` without one.
    pub health: Option<HealthCheckSettings>,
    /// HTTP version of the connections.
    pub http: HttpVersion,
    /// CA certificates that verify the provider's certificate, PEM; if `None`, those of the system are used.
    pub ca: Option<PathBuf>,
    /// Files of the client certificate chain and of its key, PEM; `None` if the gateway presents no certificate.
    pub client: Option<(PathBuf, PathBuf)>,
    /// Minimum TLS version.
    pub min_tls: TlsVersion,
    /// Maximum number of requests in flight; `None` for no limit.
    pub max_in_flight: Option<u32>,
    /// Maximum number of choices of one request; `None` for that of the model.
    pub max_n: Option<u32>,
    /// Token counting API of the provider's engine; `None` if it may not be used.
    pub token_count_api: Option<engine::TokenizeApi>,
    /// Other hosts from which the images that the provider generates may be fetched.
    pub image_hosts: Vec<BaseUrl>,
    /// Additional headers of every request, with lower-case names.
    pub headers: Vec<(Box<str>, SecretText)>,
}

/// Location of a provider's machines, with its power supply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderLocation {
    /// City of the provider's machines.
    pub city: Box<str>,
    /// English name of the country, one of the 27 member states.
    pub country: Box<str>,
    /// Country code (ISO 3166-1 alpha-2), upper case.
    pub code: Box<str>,
    /// Building, grid and meter, for the footprint.
    pub site: penstock_footprint::ServiceSite,
    /// Electricity grid of the country.
    pub grid: GridRow,
    /// Contract for renewable power, if there is one.
    pub contractual: Option<RenewableContract>,
}

impl ProviderLocation {
    /// Returns the renewable share, 0 to 1, by which `:eco` ranks offers: `R + (1 - R) * c * q`. R is the share of the
    /// grid, c the share under contract, and q the weight of the evidence for the contract: 1 for generation on site or
    /// matching by the hour, 0.5 for matching by the year, 0 for certificates alone. Responses show the share of the
    /// grid only.
    #[must_use]
    pub fn eco_ranking_renewable_share(&self) -> Decimal {
        let grid = self.grid.renewable_percent / Decimal::ONE_HUNDRED;
        let contract = self.contractual.as_ref().map_or(Decimal::ZERO, |contract| {
            let worth = match contract.evidence {
                PowerContractEvidence::OnSite | PowerContractEvidence::HourlyPpa => Decimal::ONE,
                PowerContractEvidence::AnnualPpa => Decimal::new(5, 1),
                PowerContractEvidence::Unbundled => Decimal::ZERO,
            };
            contract.share * worth
        });
        grid + (Decimal::ONE - grid) * contract
    }
}

/// Renewable power by contract.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenewableContract {
    /// Share of the power that the contract covers, 0 to 1.
    pub share: Decimal,
    /// Evidence for the contract.
    pub evidence: PowerContractEvidence,
}

/// Parsed base URL of a provider's API.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BaseUrl {
    /// True if the scheme is `https`.
    pub tls: bool,
    /// Host name or address; an IPv6 address without brackets.
    pub host: Box<str>,
    /// Port; the default of the scheme if none was written.
    pub port: u16,
    /// Path without a slash at its end; empty or starts with `/`.
    pub path_prefix: Box<str>,
    /// Value of the `host` header, with brackets and port if they are needed.
    pub authority: Box<str>,
}

/// Timeouts of requests to a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeoutSettings {
    /// Timeout of the TCP connection; the TLS handshake has the same timeout again.
    pub connect: Duration,
    /// Timeout of the response head of a stream.
    pub first_byte: Duration,
    /// Timeout of the response head of an unstreamed request. The head arrives only after the generation is complete.
    pub plain: Duration,
    /// Time from the response head of a stream to its first content token.
    pub first_token: Duration,
    /// Maximum time without progress in a stream, after its first content token.
    pub idle: Duration,
    /// Timeout of a complete attempt.
    pub total: Duration,
}

/// Active health check: `GET base + path` must answer with a status below 400.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthCheckSettings {
    /// Path below the base URL, starts with `/`.
    pub path: Box<str>,
    /// Interval between two health checks of the provider.
    pub interval: Duration,
    /// Timeout of a check.
    pub timeout: Duration,
}

/// One model at one provider.
#[derive(Clone, Debug)]
pub struct OfferSettings {
    /// Index of the offer in [`Settings::offers`](super::Settings::offers).
    pub index: usize,
    /// Provider of the offer.
    pub provider: Arc<Provider>,
    /// Model of the offer.
    pub model: Arc<ModelSettings>,
    /// Name of the model at the provider.
    pub name: Box<str>,
    /// Price of the offer.
    pub tariff: Tariff,
    /// Later tariffs, each with the Unix second from which it applies, ascending.
    pub later_tariffs: Vec<(u64, Tariff)>,
    /// Footprint factors of the model at this provider, computed in advance.
    pub footprint_factors: OfferFactors,
    /// Capabilities of the offer.
    pub capabilities: OfferCapabilities,
    /// Request format; `None` for chat, which uses dialects.
    pub shape: Option<&'static dyn ProviderAdapter>,
    /// Dialects for this model, the preferred first; never empty.
    pub dialects: Vec<Dialect>,
    /// Context window of this offer: maximum of input and output tokens together.
    pub context_length: u64,
    /// Maximum number of generated tokens; `None` if only the context window limits it.
    pub max_output: Option<u64>,
    /// Default number of diffusion steps of an image; `None` if it is not configured.
    pub image_steps: Option<u32>,
    /// True if the provider runs the model in its throughput tier.
    pub throughput_tier: bool,
}
