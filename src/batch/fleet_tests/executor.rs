//! Executor of lines that a test controls.

use super::*;
use crate::billing::{ReserveAmounts, SaleTerms, Settlement};
use crate::telemetry::request_id::RequestId;
use async_trait::async_trait;
use bytes::Bytes;
use penstock_core::TokenUsage;
use penstock_ledger::{RequestFootprint, SaleDetails};
use rust_decimal::Decimal;

/// Executor that waits for permission, and answers and charges each line.
pub(super) struct GatedExecutor {
    pub(super) app: Arc<AppState>,
    pub(super) permits: Semaphore,
    pub(super) started: AtomicUsize,
    /// True if the provider refuses all lines for now.
    pub(super) is_overloaded: AtomicBool,
    /// Number of executions of each line of the fleet.
    pub(super) calls: Arc<Mutex<BTreeMap<String, usize>>>,
}

#[async_trait]
impl LineExecutor for GatedExecutor {
    async fn execute(&self, line: LineRequest) -> LineResponse {
        let text = String::from_utf8(line.body.to_vec()).unwrap();
        *self.calls.lock().entry(text).or_default() += 1;
        let request = RequestId::random();
        let hold = self.app.ledger.reserve(
            ACCOUNT,
            &line.principal.public_id.clone(),
            request.as_str(),
            ReserveAmounts { credits: 10, energy: None, eur: 10 },
            false,
        );
        let hold = hold.map_err(|refusal| refusal.message).unwrap();
        self.started.fetch_add(1, Ordering::AcqRel);
        let ending = match self.is_overloaded.load(Ordering::Acquire) {
            true => LineDisposition::Retry(Duration::from_secs(600)),
            false => tokio::select! {
                permit = self.permits.acquire() => { permit.unwrap().forget(); LineDisposition::Final }
                () = line.cancel.cancelled() => LineDisposition::Cancelled,
            },
        };
        let end = match ending {
            LineDisposition::Final => hold.into_settled_end(charge()),
            _ => hold.into_voided_end("not answered", RequestFootprint::default()),
        };
        LineResponse {
            request_id: request,
            status: 200,
            body: vec![Bytes::from_static(b"{}")],
            hold_end: Some(end),
            usage: Some(TokenUsage::default()),
            disposition: ending,
        }
    }
}

fn charge() -> Settlement {
    Settlement {
        amount: 10,
        eur: 10,
        sale: SaleDetails {
            model: "m".into(),
            provider: "p".into(),
            terms: "t".into(),
            batch: true,
            usage: TokenUsage { input: 1, output: 2, ..TokenUsage::default() },
            images: 0,
            seconds: Decimal::ZERO,
            billable_kwh: None,
            eur: Decimal::new(10, 8),
        },
        terms: Arc::new(SaleTerms { id: "t".into(), text: "{}".into() }),
        footprint: RequestFootprint::default(),
    }
}
