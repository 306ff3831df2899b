//! Tests of two gateways that share a store, a ledger and a folder of files: a batch is run by one of them at a time,
//! or by both in slices.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod cases;
mod executor;
mod groups;
mod inserts;
mod retries;
mod slices;
mod takeovers;

use super::*;
use crate::auth::principal::Principal;
use crate::config::settings::{FleetSettings, Settings};
use crate::config::{ResolveEnv, load_text};
use crate::state::AppState;
use crate::storage::files::quota::UploadLimits;
use crate::storage::files::{FileExpiryContext, FileManager, FileOwner};
use executor::GatedExecutor;
use penstock_batch::create_request::CreateBatchRequest;
use penstock_batch::upload_form::UploadFields;
use penstock_core::ErrorCode;
use penstock_ledger::{EntryKind, HashChain, Wallet, split_lines};
use penstock_storage::batches::{BatchState, ClaimState};
use penstock_storage::files::FileStore;
use penstock_storage::fleet::SharedFleet;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicUsize;
use std::time::Instant as StdInstant;
use tokio::sync::Semaphore;

/// Lines in flight of one gateway.
const CONCURRENCY: usize = 4;
const ACCOUNT: &str = "default";

/// Gateway of the fleet.
struct Member {
    fleet: Arc<FleetMember>,
    context: Arc<BatchContext>,
    executor: Arc<GatedExecutor>,
}

/// Two gateways, and the stores and files that they share.
struct Pair {
    app: Arc<AppState>,
    principal: Arc<Principal>,
    calls: Arc<Mutex<BTreeMap<String, usize>>>,
    members: [Member; 2],
    folder: tempfile::TempDir,
}

fn settings(folder: &std::path::Path) -> Settings {
    let text = format!(
        "[storage]\npath = {:?}\nballast = \"0B\"\n[log]\nlevel = \"error\"\n[files]\nkeep_free = \"0B\"\n\
         [batches]\nconcurrency = {CONCURRENCY}\nopen = 3\n[ledger]\nwindow = \"0\"\n",
        folder.join("storage")
    );
    load_text("test.toml", &text, ResolveEnv { env: &|_| None }).unwrap().settings
}

impl Pair {
    async fn start() -> Pair {
        Self::start_with(slice_claims::SLICE_LINES).await
    }

    /// Starts both gateways with slices of this many lines.
    async fn start_with(slice_lines: u32) -> Pair {
        let folder = tempfile::tempdir().unwrap();
        let settings = settings(folder.path());
        let built = tokio::task::spawn_blocking(move || AppState::build(settings)).await;
        let app = built.unwrap().unwrap();
        let (key, _) = crate::admin::keys::create_demo_key(&app).await.unwrap();
        let principal = app.key_cache.find_principal(&key).unwrap();
        let calls: Arc<Mutex<BTreeMap<String, usize>>> = Arc::default();
        let members = ["1", "2"].map(|name| Member::join(&app, folder.path(), (name, slice_lines), &calls));
        let pair = Pair { app, principal, calls, members, folder };
        pair.observe(StdInstant::now());
        pair
    }

    /// Makes both members read each other's heartbeats.
    fn observe(&self, at: StdInstant) {
        self.members.iter().for_each(|member| drop(member.fleet.refresh_members(at).unwrap()));
    }

    /// Makes the other member declare `member` dead, as if its heartbeats had stopped.
    fn silence(&self, member: usize) {
        let (other, later) = (&self.members[1 - member].fleet, StdInstant::now() + Duration::from_secs(60));
        other.refresh_members(later).unwrap();
        assert_eq!(other.live_members().len(), 1);
    }

    fn upload(&self, member: usize, count: usize) -> Result<String, crate::storage::files::FileError> {
        self.upload_within(1 << 20, member, count)
    }

    /// Uploads an input file; fails if the size of the key's files would then exceed `max_key_bytes`.
    fn upload_within(
        &self,
        max_key_bytes: u64,
        member: usize,
        count: usize,
    ) -> Result<String, crate::storage::files::FileError> {
        let files = &self.members[member].context.files;
        let limits = UploadLimits {
            max_total_bytes: 1 << 30,
            max_key_bytes,
            min_free_bytes: 0,
            max_line_bytes: 1 << 20,
        };
        let owner = FileOwner { key: &self.principal.public_id, account: ACCOUNT };
        let mut upload = files.start_upload(owner, limits)?;
        for number in 0..count {
            let line = format!(
                r#"{{"custom_id":"line-{number}","method":"POST","url":"/v1/rerank","body":{{"query":"{number}"}}}}"#
            );
            upload.push(format!("{line}\n").as_bytes())?;
        }
        let form = UploadFields { filename: "in.jsonl".to_owned(), expires_after: None };
        Ok(files.store_upload(upload, owner, form, self.app.clock.calendar_now())?.id)
    }

    async fn create(&self, member: usize, input: &str) -> Result<Arc<BatchRecord>, ErrorCode> {
        let request = CreateBatchRequest {
            input_file_id: input.to_owned(),
            endpoint: "/v1/rerank",
            completion_window: "24h".to_owned(),
            window_seconds: 86_400,
            metadata: Vec::new(),
        };
        let made = BatchManager::create(&self.members[member].context, &self.principal, request).await;
        made.map_err(|refusal| refusal.code)
    }

    /// Returns a batch that a member runs, with its maximum number of lines in flight; these wait for permits of the
    /// test.
    async fn running(&self, member: usize, count: usize) -> String {
        let (id, executor) = (self.started(member, count).await, &self.members[member].executor);
        let in_flight = CONCURRENCY.min(count);
        until("the first commit", || self.record(&id).state == BatchState::InProgress).await;
        until("lines in flight", || executor.started.load(Ordering::Acquire) >= in_flight).await;
        id
    }

    /// Returns a batch that a member has claimed.
    async fn started(&self, member: usize, count: usize) -> String {
        let made = self.create(member, &self.upload(member, count).unwrap()).await.unwrap();
        let runner = &self.members[member];
        // By the hash, the batch may belong to the other member, which does not search for batches here. So the test
        // takes the claim itself.
        let (store, id) = (runner.context.batches.store.clone(), made.id.clone());
        runner.context.batches.check_claims().await;
        let (own, alive) = (runner.fleet.member_number(), runner.fleet.commit_fence());
        let claim = store.take_claim(&id, None, own, alive.as_ref()).unwrap().unwrap();
        let held = claims::HeldClaim { claim, takeover: claims::TakeoverKind::Orderly };
        runner.run((*made).clone(), held);
        id
    }

    fn record(&self, id: &str) -> BatchRecord {
        self.members[0].context.batches.store.get(id).unwrap().unwrap()
    }

    async fn ended(&self, id: &str) -> BatchRecord {
        until("the end of the batch", || self.record(id).state.is_final()).await;
        self.record(id)
    }

    /// Checks that each line has one result and that each result is charged once.
    async fn assert_exactly_once(&self, id: &str, count: usize) {
        let record = self.record(id);
        assert_eq!((record.state, record.counts.completed as usize), (BatchState::Completed, count));
        until("the ledger to be written", || self.app.ledger.durability_snapshot().waiting == 0).await;
        let output = record.output.unwrap();
        let files = &self.members[1].context.files;
        let contents =
            files.open_contents(&files.file_record_store().get(&output).unwrap().unwrap()).unwrap();
        let text = contents.read(0, 1 << 20).unwrap();
        let mut results = BTreeMap::new();
        for line in text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let line: serde_json::Value = serde_json::from_slice(line).unwrap();
            let request = line["id"].as_str().unwrap().trim_start_matches("batch_").to_owned();
            assert!(results.insert(request, line["custom_id"].as_str().unwrap().to_owned()).is_none());
        }
        let distinct: std::collections::BTreeSet<&String> = results.values().collect();
        assert_eq!((results.len(), distinct.len()), (count, count), "one result each");
        let charged: Vec<String> = self.entries().into_iter().filter_map(settled_request).collect();
        assert_eq!(charged.len(), count, "one charge each");
        assert!(charged.iter().all(|request| results.contains_key(request)));
        let proof = crate::billing::report::verify(&self.app.ledger.store).unwrap();
        assert!(proof.is_intact() && proof.open_reservations == 0, "{proof:?}");
        let charged = i64::try_from(count).unwrap() * 10;
        assert_eq!(self.app.ledger.balance(ACCOUNT).credits.amount, -charged, "in memory too");
        let rows = self.app.ledger.store.balance(ACCOUNT).unwrap().unwrap();
        assert_eq!(rows.credits, -charged);
        let folder = self.app.config_snapshot().settings.files.path.clone();
        until("the former output file to be removed", || {
            let names = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name());
            names.filter(|name| name.to_string_lossy().starts_with("file-")).count() == 2
        })
        .await;
        let used = files.file_record_store().used_bytes(&self.principal.public_id).unwrap();
        let records = files.file_record_store().list_all(None, 100).unwrap().files;
        assert_eq!((used.all, used.key), (records.iter().map(|file| file.bytes).sum(), used.all));
    }

    fn entries(&self) -> Vec<EntryKind> {
        let mut entries = Vec::new();
        let read = self.app.ledger.store.for_each_block(0, |block| {
            entries.extend(
                split_lines(&block.text).map(|line| HashChain::parse_unverified(line).unwrap().0.kind),
            );
            Ok::<_, penstock_storage::StoreError>(())
        });
        read.unwrap();
        entries
    }

    async fn stop(self) {
        for member in &self.members {
            member.executor.permits.add_permits(1_000);
            assert!(member.context.batches.close().await);
        }
        let app = self.app.clone();
        tokio::task::spawn_blocking(move || app.ledger.close()).await.unwrap();
        drop(self.folder);
    }
}

fn settled_request(act: EntryKind) -> Option<String> {
    match act {
        EntryKind::Settle { request, wallet: Wallet::Credits, .. } => Some(request.to_string()),
        _ => None,
    }
}

fn join_fleet(store: Arc<dyn Store>, folder: &std::path::Path, name: &str) -> Arc<FleetMember> {
    let settings = FleetSettings {
        name: Some(name.to_owned()),
        claim: Duration::from_secs(15),
        lease: Duration::from_secs(600),
        advance: Duration::from_secs(300),
        stale: None,
    };
    FleetMember::join(SharedFleet::new(store), &settings, &folder.join(name)).unwrap()
}

impl Member {
    fn join(
        app: &Arc<AppState>,
        folder: &std::path::Path,
        (name, slice_lines): (&str, u32),
        calls: &Arc<Mutex<BTreeMap<String, usize>>>,
    ) -> Member {
        let store = app.stores.store.clone();
        let fleet = join_fleet(store.clone(), folder, name);
        let files = FileManager::open_shared_folder(
            &app.config_snapshot().settings.files,
            FileStore::new(store.clone()),
        )
        .unwrap();
        let batches = BatchManager { slice_lines, ..BatchManager::new(store, fleet.clone()) };
        batches.set_peers_run_slices(true);
        Self::start(app, (files, batches), fleet, calls)
    }

    /// Returns a gateway that uses the same store and files without a fleet.
    fn alone(app: &Arc<AppState>, calls: &Arc<Mutex<BTreeMap<String, usize>>>) -> Member {
        let (fleet, store) = (FleetMember::without_fleet(), app.stores.store.clone());
        let files = FileStore::new(store.clone());
        let files = FileManager::open(&app.config_snapshot().settings.files, files, false).unwrap();
        Self::start(app, (files, BatchManager::new(store, fleet.clone())), fleet, calls)
    }

    fn start(
        app: &Arc<AppState>,
        (files, batches): (FileManager, BatchManager),
        fleet: Arc<FleetMember>,
        calls: &Arc<Mutex<BTreeMap<String, usize>>>,
    ) -> Member {
        let (files, batches) = (Arc::new(files), Arc::new(batches));
        files.set_consumers(batches.clone());
        let executor = Arc::new(GatedExecutor {
            app: app.clone(),
            permits: Semaphore::new(0),
            started: AtomicUsize::new(0),
            is_overloaded: AtomicBool::new(false),
            calls: calls.clone(),
        });
        let context = BatchContext {
            current_config: app.batch_context.current_config.clone(),
            clock: app.clock,
            ledger: app.ledger.clone(),
            key_cache: app.key_cache.clone(),
            admission: app.admission.clone(),
            metrics: app.metrics.clone(),
            files,
            responses: app.responses.clone(),
            batches,
            lifecycle: Arc::default(),
            executor: OnceLock::new(),
        };
        assert!(context.executor.set(executor.clone()).is_ok());
        let context = Arc::new(context);
        BatchManager::start_threads(&context).unwrap();
        Member { fleet, context, executor }
    }

    fn run(&self, record: BatchRecord, held: claims::HeldClaim) {
        let batches = &self.context.batches;
        let (commands, published) = batches.register(&record, usize::MAX, Some(held.claim)).unwrap();
        batches.spawn_batch(&self.context, RunnableBatch { record, claim: Some(held) }, commands, published);
    }

    async fn claim(&self) {
        self.context.batches.check_claims().await;
        BatchManager::claim_and_run_batches(&self.context, false).await.unwrap();
    }

    /// Number of lines that this member has started.
    fn started(&self) -> usize {
        self.executor.started.load(Ordering::Acquire)
    }

    fn runs(&self, id: &str) -> bool {
        self.context.batches.running.lock().contains_key(id)
    }
}

async fn until(what: &str, is: impl Fn() -> bool) {
    let reached = async {
        while !is() {
            tokio::task::yield_now().await;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(Duration::from_secs(60), reached).await.unwrap_or_else(|_| panic!("waited in vain for {what}"));
}
