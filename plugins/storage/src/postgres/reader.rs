//! Connection for reads, opened again when it is lost.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Mutex;
use tokio_postgres::Client;

use super::connection::{DatabaseError, connect};
use super::options::ConnectSettings;
use super::schema::TableNames;
use crate::StoreError;

/// Time from the first attempt of a read within which the read is retried.
const RETRY_TIME: Duration = Duration::from_secs(2);
/// Timeout of one attempt, including connecting, because a network may fail without resetting the connection.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum pause before a retry. Each pause is random, from a tenth of this time to all of it; pauses do not grow.
const MAX_PAUSE: Duration = Duration::from_millis(100);

/// Connection that concurrent reads share.
pub(super) struct Reader {
    pub(super) settings: ConnectSettings,
    pub(super) names: TableNames,
    client: Mutex<Option<Arc<Client>>>,
}

impl Reader {
    pub(super) fn new(settings: ConnectSettings, names: TableNames, client: Client) -> Reader {
        Reader { settings, names, client: Mutex::new(Some(Arc::new(client))) }
    }

    /// Runs a read, and repeats it after a lost connection.
    pub(super) async fn read_with_retry<T, F>(
        &self,
        mut query: impl FnMut(Arc<Client>) -> F,
    ) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, DatabaseError>>,
    {
        let started = Instant::now();
        loop {
            match self.attempt(&mut query).await {
                Ok(value) => return Ok(value),
                Err(error @ DatabaseError::Permanent(_)) => return Err(error.into()),
                Err(error) if started.elapsed() >= RETRY_TIME => return Err(error.into()),
                Err(_) => {
                    tokio::time::sleep(MAX_PAUSE.mul_f64(rand::random_range(0.1..1.0))).await;
                }
            }
        }
    }

    /// Runs a read once. If the connection does not answer in time, the next attempt opens a new one.
    async fn attempt<T, F>(&self, query: &mut impl FnMut(Arc<Client>) -> F) -> Result<T, DatabaseError>
    where
        F: Future<Output = Result<T, DatabaseError>>,
    {
        let deadline = tokio::time::Instant::now() + ATTEMPT_TIMEOUT;
        let no_answer = || DatabaseError::Lost("no answer in time".to_owned());
        let client = tokio::time::timeout_at(deadline, self.client()).await.map_err(|_| no_answer())??;
        if let Ok(answer) = tokio::time::timeout_at(deadline, query(Arc::clone(&client))).await {
            return answer;
        }
        let mut current = self.client.lock().await;
        if current.as_ref().is_some_and(|current| Arc::ptr_eq(current, &client)) {
            *current = None;
        }
        Err(no_answer())
    }

    async fn client(&self) -> Result<Arc<Client>, DatabaseError> {
        let mut current = self.client.lock().await;
        if let Some(client) = current.as_ref().filter(|client| !client.is_closed()) {
            return Ok(Arc::clone(client));
        }
        let client = Arc::new(connect(&self.settings).await?);
        *current = Some(Arc::clone(&client));
        Ok(client)
    }
}
