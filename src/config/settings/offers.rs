//! Models, providers and what they offer each other.

use super::super::secret::Secret;
use super::{Evidence, HttpVersion, TlsVersion};
use penstock_catalog::Model as Card;
use penstock_contract::{Abilities, Dialect, Kind, Score, Shape, Size};
use penstock_footprint::grid::Row;
use penstock_footprint::{EnergyCard, Prepared};
use penstock_pricing::Tariff;
use penstock_tokens::engine;
use penstock_tokens::{Counter, Encoding};
use rust_decimal::Decimal;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// JSON members: name, JSON text of the value.
pub type Members = Vec<(Box<str>, Box<str>)>;

/// A model of the catalogue with all that the house knows of it.
#[derive(Clone, Debug)]
pub struct Model {
    /// What clients see.
    pub card: Card,
    /// What it does.
    pub kind: Kind,
    /// Ids of models to use instead when all offers fail, the nearest first. They exist and have no cycle.
    pub fallbacks: Vec<Box<str>>,
    /// Whether a broken stream is rescued.
    pub rescue: bool,
    /// Most choices of one request to a provider.
    pub max_n: Option<u32>,
    /// What its scores are (rerank).
    pub score: Score,
    /// What token ids in a request are (embeddings).
    pub token_ids: TokenIds,
    /// Preset name → JSON members (name, JSON text) that fill what the client left out.
    pub presets: BTreeMap<Box<str>, Members>,
    /// Sizes in which it draws images, its own first; empty: any.
    pub image_sizes: Vec<Size>,
    /// What it draws.
    pub energy: EnergyCard,
    /// How its tokens are counted; `None`: estimated.
    pub tokenizer: Option<Tokenizer>,
    /// Price where an offer names none, and what its requests are paid with.
    pub tariff: Tariff,
    /// The tariffs after it, by the Unix second from which each counts, rising.
    pub later: Vec<(u64, Tariff)>,
}

impl Model {
    /// Its page in the catalogue.
    #[must_use]
    pub fn card(&self) -> Card {
        self.card.clone()
    }
}

/// What token ids in the input of an embedding request are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenIds {
    /// Ids of a published vocabulary, which become text.
    Text(Encoding),
    /// The model's own, which go to the provider as they came.
    Native,
    /// Nothing that is taken.
    Refuse,
}

/// Counts the tokens of a model, exactly.
#[derive(Clone)]
pub struct Tokenizer(pub Arc<Counter>);

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tokenizer")
    }
}

/// Who runs models, and where.
#[derive(Clone, Debug)]
pub struct Provider {
    /// Position in [`Settings::providers`](super::Settings::providers).
    pub index: usize,
    /// Unique name; `environment_impact.provider_id`.
    pub id: Box<str>,
    /// The company.
    pub operator: Box<str>,
    /// Where its machines are.
    pub place: Place,
    /// Where it is asked.
    pub base: BaseUrl,
    /// What it is asked with; `None`: nothing.
    pub api_key: Option<Secret>,
    /// Dialects it speaks, the preferred first; never empty.
    pub dialects: Vec<Dialect>,
    /// How long it may take.
    pub timeouts: Timeouts,
    /// Checks on the side.
    pub health: Option<Health>,
    /// The HTTP version it is asked in.
    pub http: HttpVersion,
    /// Roots for its certificate instead of the system's, PEM.
    pub ca: Option<PathBuf>,
    /// What it is shown of ours: certificate chain and key, PEM.
    pub client: Option<(PathBuf, PathBuf)>,
    /// The oldest version of TLS that is spoken with it.
    pub min_tls: TlsVersion,
    /// Most requests at the same time; `None`: no limit of ours.
    pub seats: Option<u32>,
    /// Most choices of one request.
    pub max_n: Option<u32>,
    /// How the engine behind it counts tokens, if it may be asked.
    pub tokenize: Option<engine::Shape>,
    /// Where else its images may be fetched from.
    pub image_hosts: Vec<BaseUrl>,
    /// Headers sent with each request besides the dialect's own, lower-case names.
    pub headers: Vec<(Box<str>, Secret)>,
}

/// Where machines are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// City.
    pub city: Box<str>,
    /// Country's English name, one of the 27 member states.
    pub country: Box<str>,
    /// ISO 3166-1 alpha-2, upper case.
    pub code: Box<str>,
    /// Building, grid and meter, as the footprint takes them.
    pub site: penstock_footprint::Place,
    /// The grid there.
    pub grid: Row,
    /// Renewable power by contract.
    pub contractual: Option<Contractual>,
}

impl Place {
    /// Renewable share, 0 to 1, by which `:eco` ranks: `R + (1 - R) * c * q`, where R is the grid's share, c the
    /// contract's, and q what its evidence is worth: 1 on site or matched by the hour, 0.5 matched by the
    /// year, 0 for certificates alone. Answers show the grid's share only.
    #[must_use]
    pub fn eco_share(&self) -> Decimal {
        let grid = self.grid.renewable_percent / Decimal::ONE_HUNDRED;
        let contract = self.contractual.as_ref().map_or(Decimal::ZERO, |contract| {
            let worth = match contract.evidence {
                Evidence::OnSite | Evidence::HourlyPpa => Decimal::ONE,
                Evidence::AnnualPpa => Decimal::new(5, 1),
                Evidence::Unbundled => Decimal::ZERO,
            };
            contract.share * worth
        });
        grid + (Decimal::ONE - grid) * contract
    }
}

/// Renewable power by contract.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contractual {
    /// Share, 0 to 1.
    pub share: Decimal,
    /// What proves it.
    pub evidence: Evidence,
}

/// A base URL, taken apart.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BaseUrl {
    /// `https`.
    pub tls: bool,
    /// Name or address; an IPv6 address without brackets.
    pub host: Box<str>,
    /// Port, the scheme's own when none was written.
    pub port: u16,
    /// Path without a slash at its end; empty or starts with `/`.
    pub path_prefix: Box<str>,
    /// Value of the `host` header: brackets and a port where they are needed.
    pub authority: Box<str>,
}

/// How long a provider may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// TCP, and again TLS.
    pub connect: Duration,
    /// Response head of a stream.
    pub first_byte: Duration,
    /// Response head of a plain request, which comes when all is generated.
    pub plain: Duration,
    /// First content token after the head of a stream.
    pub first_token: Duration,
    /// Silence afterwards.
    pub idle: Duration,
    /// The whole attempt.
    pub total: Duration,
}

/// An active check: `GET base + path` answers below 400.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// Path below the base URL, starts with `/`.
    pub path: Box<str>,
    /// Pause between two checks.
    pub interval: Duration,
    /// How long a check may take.
    pub timeout: Duration,
}

/// One model at one provider.
#[derive(Clone, Debug)]
pub struct Offer {
    /// Position in [`Settings::offers`](super::Settings::offers).
    pub index: usize,
    /// Who.
    pub provider: Arc<Provider>,
    /// What.
    pub model: Arc<Model>,
    /// What the provider calls the model.
    pub name: Box<str>,
    /// Its price.
    pub tariff: Tariff,
    /// The tariffs after it, by the Unix second from which each counts, rising.
    pub later: Vec<(u64, Tariff)>,
    /// What it draws here, multiplied out.
    pub prepared: Prepared,
    /// What it takes.
    pub abilities: Abilities,
    /// How it is asked; `None` for chat, which is asked in dialects.
    pub shape: Option<&'static dyn Shape>,
    /// Dialects it is asked in, the preferred first; never empty.
    pub dialects: Vec<Dialect>,
    /// Input and output tokens together, here.
    pub context_length: u64,
    /// Most generated tokens here, where less than the window.
    pub max_output: Option<u64>,
    /// Diffusion steps of an image, where a request sets none.
    pub image_steps: Option<u32>,
    /// The provider runs it in its throughput tier.
    pub throughput_tier: bool,
}
