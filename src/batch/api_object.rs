//! Batch object of the API, with every member that client libraries know.

use penstock_batch::state::{BatchLifecycle, LifecycleState, LineCounts, TransitionTimes};
use penstock_storage::batches::{BatchCounts, BatchRecord, BatchState, BatchUsage};
use serde_json::{Map, Value, json};

/// Returns the lifecycle that a record stores.
pub fn lifecycle_from_record(record: &BatchRecord) -> BatchLifecycle {
    let counts = &record.counts;
    BatchLifecycle {
        state: lifecycle_state(record.state),
        counts: LineCounts {
            total: counts.total,
            completed: counts.completed,
            failed: counts.failed,
            cancelled: counts.cancelled,
            expired: counts.expired,
        },
        times: TransitionTimes {
            in_progress: record.in_progress,
            completed: record.completed,
            failed: record.failed,
            cancelled: record.cancelled,
        },
    }
}

/// Writes a lifecycle to its record.
pub fn write_lifecycle_to_record(record: &mut BatchRecord, life: &BatchLifecycle) {
    record.state = match life.state {
        LifecycleState::Validating => BatchState::Validating,
        LifecycleState::InProgress => BatchState::InProgress,
        LifecycleState::Completed => BatchState::Completed,
        LifecycleState::Failed => BatchState::Failed,
        LifecycleState::Cancelled => BatchState::Cancelled,
    };
    let counts = &life.counts;
    record.counts = BatchCounts {
        total: counts.total,
        completed: counts.completed,
        failed: counts.failed,
        cancelled: counts.cancelled,
        expired: counts.expired,
    };
    record.in_progress = life.times.in_progress;
    record.completed = life.times.completed;
    record.failed = life.times.failed;
    record.cancelled = life.times.cancelled;
}

/// Converts the state of a record to that of a lifecycle.
pub const fn lifecycle_state(state: BatchState) -> LifecycleState {
    match state {
        BatchState::Validating => LifecycleState::Validating,
        BatchState::InProgress => LifecycleState::InProgress,
        BatchState::Completed => LifecycleState::Completed,
        BatchState::Failed => LifecycleState::Failed,
        BatchState::Cancelled => LifecycleState::Cancelled,
    }
}

/// Returns the batch as an object of the API.
pub fn batch_object(record: &BatchRecord) -> Value {
    let expired = record.errors.iter().any(|error| error.code == "batch_expired");
    let metadata: Map<String, Value> =
        record.metadata.iter().map(|(name, text)| (name.clone(), Value::from(text.as_str()))).collect();
    let counts = &record.counts;
    let over = counts.completed + counts.failed + counts.cancelled + counts.expired;
    let open = counts.total.saturating_sub(over);
    json!({
        "id": record.id,
        "object": "batch",
        "endpoint": record.endpoint,
        "model": record.model,
        "errors": errors_json(record),
        "input_file_id": record.input,
        "completion_window": record.window,
        "status": lifecycle_state(record.state).name(),
        "output_file_id": record.output,
        "error_file_id": null,
        "created_at": record.created_ms / 1_000,
        "scheduled_for": record.scheduled,
        "in_progress_at": record.in_progress,
        "expires_at": record.expires,
        "finalizing_at": null,
        "completed_at": record.completed,
        "failed_at": record.failed,
        "expired_at": record.failed.filter(|_| expired),
        "cancelling_at": record.cancelled,
        "cancelled_at": record.cancelled,
        "request_counts": {
            "total": counts.total,
            "completed": counts.completed,
            "failed": counts.failed,
            "cancelled": counts.cancelled,
            "expired": counts.expired,
            // Member names of the Message Batches API for the same counts.
            "processing": open,
            "succeeded": counts.completed,
            "errored": counts.failed,
        },
        "usage": usage_json(&record.usage),
        "metadata": metadata,
    })
}

fn errors_json(record: &BatchRecord) -> Value {
    if record.errors.is_empty() {
        return Value::Null;
    }
    let data: Vec<Value> = record
        .errors
        .iter()
        .map(|error| {
            json!({"code": error.code, "message": error.message, "line": error.line, "param": error.param})
        })
        .collect();
    json!({"object": "list", "data": data})
}

fn usage_json(usage: &BatchUsage) -> Value {
    json!({
        "input_tokens": usage.input,
        "input_tokens_details": {"cached_tokens": usage.cached},
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": usage.input.saturating_add(usage.output),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_schema_has_each_member_of_a_batch() {
        let schemas: Value =
            serde_json::from_str(include_str!("../proxy/endpoint/openapi/schemas.json")).unwrap();
        let names = |object: &Value| object.as_object().unwrap().keys().cloned().collect::<BTreeSet<_>>();
        let batch = batch_object(&BatchRecord::default());
        let described = &schemas["Batch"]["properties"];
        assert_eq!(names(&batch), names(described));
        assert_eq!(names(&batch["usage"]), names(&described["usage"]["properties"]));
    }
}
