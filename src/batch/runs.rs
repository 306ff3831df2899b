//! What files ask of batches: whether one needs a file, and its end before its input is deleted.

use super::refusals::unkept;
use super::{Batches, DELETING, PATIENCE, Tell};
use crate::files::Runs;
use async_trait::async_trait;
use penstock_contract::Refusal;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

#[async_trait]
impl Runs for Batches {
    fn needs(&self, id: &str) -> bool {
        let running = self.running.lock();
        running
            .values()
            .any(|running| *running.input == *id || running.seen.borrow().output.as_deref() == Some(id))
    }

    async fn deleted(&self, id: &str) -> Result<(), Refusal> {
        {
            let mut deleting = self.deleting.lock();
            deleting.retain(|_, since| since.elapsed() < DELETING);
            deleting.insert(id.into(), Instant::now());
        }
        let mut ends = Vec::new();
        for running in self.running.lock().values().filter(|running| *running.input == *id) {
            let (asker, ended) = oneshot::channel();
            running.tell.send(Tell::InputDeleted(asker)).ok();
            ends.push(ended);
        }
        for ended in ends {
            if timeout(PATIENCE, ended).await.is_err() {
                self.deleting.lock().remove(id);
                return Err(unkept());
            }
        }
        Ok(())
    }
}
