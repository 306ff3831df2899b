//! Gateway of a test, with a configuration in the users' format.

use super::{Client, Provider};
use penstock::admin::keys;
use penstock::app::gateway::RunningGateway;
use penstock::config::ConfigLoader;
use penstock::config::{LoadedConfig, ResolveEnv, Settings, load_text};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// Builder of a test gateway.
#[derive(Default)]
pub struct Bench {
    top: String,
    listen: String,
    kind: Option<&'static str>,
    model: String,
    rest: String,
    providers: Vec<(String, String, String, String)>,
}

/// Running gateway, with a key that has all scopes.
pub struct Running {
    pub gateway: RunningGateway,
    pub client: Client,
    folder: tempfile::TempDir,
}

/// Timeouts that a healthy provider does not reach on a slow machine.
pub const PATIENT: &str =
    r#"timeouts = { connect = "20s", first_byte = "40s", first_token = "40s", idle = "40s", total = "50s" }"#;

impl Bench {
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds lines at the start of the configuration: tables such as `[routing]`.
    pub fn settings(mut self, toml: &str) -> Self {
        self.top.push_str(toml);
        self.top.push('\n');
        self
    }

    /// Lines of `[listen]`.
    pub fn listen(mut self, toml: &str) -> Self {
        self.listen.push_str(toml);
        self
    }

    /// Kind of the model `m`; chat by default.
    pub fn kind(mut self, kind: &'static str) -> Self {
        self.kind = Some(kind);
        self
    }

    /// Lines of the model `m`.
    pub fn model(mut self, toml: &str) -> Self {
        self.model.push_str(toml);
        self.model.push('\n');
        self
    }

    /// Adds blocks at the end of the configuration, such as further models or providers.
    pub fn more(mut self, toml: &str) -> Self {
        self.rest.push_str(toml);
        self.rest.push('\n');
        self
    }

    /// A provider in France that offers `m`.
    pub fn provider(self, id: &str, provider: &Provider) -> Self {
        self.provider_with(id, provider, PATIENT, "")
    }

    /// Adds a provider with short timeouts, for scripts that send nothing.
    pub fn hasty(self, id: &str, provider: &Provider) -> Self {
        let timeouts = r#"timeouts = { connect = "20s", first_byte = "1s", plain = "1s", first_token = "1s", idle = "1s", total = "50s" }"#;
        self.provider_with(id, provider, timeouts, "")
    }

    /// Adds a provider with extra settings for itself and for its offer.
    pub fn provider_with(self, id: &str, provider: &Provider, lines: &str, offer: &str) -> Self {
        self.provider_at(id, &format!("http://{}/v1", provider.address), lines, offer)
    }

    pub fn provider_at(mut self, id: &str, base: &str, lines: &str, offer: &str) -> Self {
        self.providers.push((id.into(), base.into(), lines.into(), offer.into()));
        self
    }

    /// The configuration as text.
    pub fn toml(&self, storage: &std::path::Path) -> String {
        let mut text = format!(
            "[listen]\nhttp = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\n{}\n\n[storage]\npath = {storage:?}\nballast = \"0B\"\n\n\
             [log]\nlevel = \"error\"\n\n{}\n[[models]]\nid = \"m\"\nname = \"M\"\nkind = \"{}\"\ncreated = 1700000000\n\
             price = {{ input = 1.0, cached_input = 0.1, output = 2.0 }}\n\
             energy = {{ active_params_b = 8.0, total_params_b = 8.0, joules_per_output_token = 0.119 }}\n{}\n",
            self.listen,
            self.top,
            self.kind.unwrap_or("chat"),
            self.model,
        );
        let says = |key: &str| self.model.lines().any(|line| line.trim_start().starts_with(key));
        if !says("context_length") {
            text.push_str("context_length = 131072\n");
        }
        if !says("supported_parameters") {
            text.push_str("supported_parameters = [\"tools\", \"response_format\", \"temperature\", \"stream\", \"top_p\", \"seed\", \"stop\", \"max_tokens\"]\n");
        }
        for (id, base, lines, offer) in &self.providers {
            text.push_str(&format!(
                "\n[[providers]]\nid = \"{id}\"\noperator = \"Test\"\ncountry = \"FR\"\ncity = \"Paris\"\n\
                 base_url = \"{base}\"\npue = 1.16\nwue = 0.214\n{lines}\n\n\
                 [[providers.offers]]\nmodel = \"m\"\nname = \"theirs\"\n{offer}\n",
            ));
        }
        text.push_str(&self.rest);
        text
    }

    pub fn load(&self, storage: &std::path::Path) -> Settings {
        let text = self.toml(storage);
        match load_text("test.toml", &text, ResolveEnv { env: &|name| Some(format!("value of {name}")) }) {
            Ok(loaded) => loaded.settings,
            Err(report) => {
                let mistakes: Vec<String> = report.mistakes.iter().map(ToString::to_string).collect();
                panic!("{}\n{text}", mistakes.join("\n"))
            }
        }
    }

    pub async fn start(self) -> Running {
        let folder = tempfile::tempdir().unwrap();
        let gateway = Box::pin(self.gateway(&folder)).await;
        let key = keys::create_demo_key(&gateway.app).await.unwrap().1;
        let client = Client { address: gateway.http_addresses[0], key };
        Running { gateway, client, folder }
    }

    /// Starts a gateway with the folder and the key of a stopped one.
    pub async fn restart(self, (folder, key): (tempfile::TempDir, String)) -> Running {
        let gateway = Box::pin(self.gateway(&folder)).await;
        let client = Client { address: gateway.http_addresses[0], key };
        Running { gateway, client, folder }
    }

    async fn gateway(&self, folder: &tempfile::TempDir) -> RunningGateway {
        let settings = self.load(folder.path());
        let source: ConfigLoader = {
            let settings = settings.clone();
            Arc::new(move || Ok(LoadedConfig { settings: settings.clone(), warnings: Vec::new() }))
        };
        // Repeats the start: a previous gateway may lock the store for a short time after its stop has returned.
        let mut started = RunningGateway::start(settings.clone(), source.clone()).await;
        super::within("the store", async {
            while matches!(&started, Err(why) if why.contains("another process")) {
                tokio::time::sleep(Duration::from_millis(20)).await;
                started = RunningGateway::start(settings.clone(), source.clone()).await;
            }
        })
        .await;
        started.unwrap()
    }
}

impl Running {
    /// A chat request, plain.
    pub fn ask(&self) -> Value {
        json!({"model": "m", "messages": [{"role": "user", "content": "Hi"}]})
    }

    /// A chat request, streamed.
    pub fn ask_stream(&self) -> Value {
        json!({"model": "m", "stream": true, "messages": [{"role": "user", "content": "Hi"}]})
    }

    pub async fn chat(&self) -> super::Answer {
        self.client.post("/v1/chat/completions", &self.ask()).await
    }

    pub async fn chat_stream(&self) -> super::Answer {
        self.client.post("/v1/chat/completions", &self.ask_stream()).await
    }

    /// Creates another key, as the admin listener would, and returns its client.
    pub async fn key(&self, wanted: &Value) -> Client {
        let made = keys::create_key(&self.gateway.app, wanted).await.unwrap();
        Client { address: self.client.address, key: made["key"].as_str().unwrap().to_owned() }
    }

    /// The admin listener, with its token.
    pub fn admin(&self) -> Client {
        Client { address: self.gateway.admin_address, key: self.gateway.app.stores.admin_token.to_string() }
    }

    /// Replaces the configuration.
    pub async fn reload(&self, settings: Settings) {
        let (app, runtime) = (self.gateway.app.clone(), tokio::runtime::Handle::current());
        let reloaded =
            tokio::task::spawn_blocking(move || app.reload(|| Ok::<_, String>(settings), &runtime));
        reloaded.await.unwrap().unwrap();
    }

    pub fn storage(&self) -> &std::path::Path {
        self.folder.path()
    }

    /// Stops the gateway and returns its folder and key, for [`Bench::restart`].
    pub async fn halt(self) -> (tempfile::TempDir, String) {
        self.halt_within(Duration::from_secs(20)).await.0
    }

    /// Stops the gateway after at most this time; also returns the number of interrupted requests.
    pub async fn halt_within(self, time: Duration) -> ((tempfile::TempDir, String), usize) {
        let interrupted = Box::pin(self.gateway.stop(time)).await;
        ((self.folder, self.client.key), interrupted)
    }

    pub async fn stop(self) {
        Box::pin(self.gateway.stop(Duration::from_secs(20))).await;
    }
}
