//! Errors of several fields of one request, in one refusal.

use penstock_core::ApiError;
use serde_json::{Value, json};

/// Member of a refusal's details that lists all invalid fields, if there are several.
pub const INVALID_FIELDS_MEMBER: &str = "invalid_fields";

/// Collected errors of the fields of one request.
#[derive(Debug, Default)]
pub struct FieldErrors {
    first: Option<ApiError>,
    fields: Vec<Value>,
}

impl FieldErrors {
    /// Returns the value of a field. If the field is invalid, records its error and returns the default value.
    pub fn unwrap_or_record<T: Default>(&mut self, value: Result<T, ApiError>) -> T {
        value.unwrap_or_else(|error| {
            self.add(error);
            T::default()
        })
    }

    /// Adds an error. If it contains the errors of several fields, adds each of them.
    pub fn add(&mut self, mut error: ApiError) {
        match error.details.remove(INVALID_FIELDS_MEMBER) {
            Some(Value::Array(fields)) => self.fields.extend(fields),
            _ => self.fields.push(json!({ "param": error.param, "message": error.message })),
        }
        self.first.get_or_insert(error);
    }

    /// Ends the collection.
    ///
    /// # Errors
    /// Returns the first error if there is one; if several fields are invalid, its details list all of them.
    pub fn into_result(self) -> Result<(), ApiError> {
        self.into_refusal().map_or(Ok(()), Err)
    }

    fn into_refusal(self) -> Option<ApiError> {
        let first = self.first?;
        Some(if self.fields.len() > 1 {
            first.with_details_member(INVALID_FIELDS_MEMBER, self.fields)
        } else {
            first
        })
    }
}

/// Returns both values, or the errors of both.
///
/// # Errors
/// Returns one refusal with all errors.
pub fn combine_results<A, B>(
    one: Result<A, ApiError>,
    other: Result<B, ApiError>,
) -> Result<(A, B), ApiError> {
    match (one, other) {
        (Ok(one), Ok(other)) => Ok((one, other)),
        (Err(error), Ok(_)) | (Ok(_), Err(error)) => Err(error),
        (Err(first), Err(second)) => {
            let code = first.code;
            let mut errors = FieldErrors::default();
            errors.add(first);
            errors.add(second);
            Err(errors.into_refusal().unwrap_or_else(|| ApiError::new(code)))
        }
    }
}

/// Returns the fields that a refusal names, each with its message.
pub fn invalid_field_messages(refusal: &ApiError) -> Vec<(String, String)> {
    let text = |field: &Value, name: &str| field.get(name).and_then(Value::as_str).map(str::to_owned);
    match refusal.details.get(INVALID_FIELDS_MEMBER).and_then(Value::as_array) {
        Some(fields) => {
            fields.iter().filter_map(|field| Some((text(field, "param")?, text(field, "message")?))).collect()
        }
        None => {
            refusal.param.iter().map(|param| (param.clone(), refusal.message.clone().into_owned())).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_refusal_names_all_invalid_fields_in_their_order() {
        let mut inner = FieldErrors::default();
        assert_eq!(inner.unwrap_or_record(Ok(7)), 7);
        for field in ["b", "c"] {
            inner.add(ApiError::invalid(field, format!("{field} is invalid.")));
        }
        let mut errors = FieldErrors::default();
        assert_eq!(errors.unwrap_or_record::<u64>(Err(ApiError::invalid("a", "a is invalid."))), 0);
        errors.unwrap_or_record(inner.into_result());
        let refusal = errors.into_result().unwrap_err();
        assert_eq!(refusal.param.as_deref(), Some("a"));
        let fields: Vec<String> =
            invalid_field_messages(&refusal).into_iter().map(|(name, _)| name).collect();
        assert_eq!(fields, ["a", "b", "c"]);
    }

    #[test]
    fn a_single_error_stays_as_it_is() {
        let mut errors = FieldErrors::default();
        errors.add(ApiError::invalid("a", "a is invalid."));
        let refusal = errors.into_result().unwrap_err();
        assert!(refusal.details.is_empty());
        assert_eq!(invalid_field_messages(&refusal), [("a".to_owned(), "a is invalid.".to_owned())]);
        assert!(FieldErrors::default().into_result().is_ok());
        let invalid = |name: &str| Err::<u8, _>(ApiError::invalid(name, format!("{name} is invalid.")));
        assert_eq!(combine_results(Ok(1), Ok(2)).unwrap(), (1, 2));
        assert_eq!(invalid_field_messages(&combine_results(invalid("a"), Ok(2)).unwrap_err()).len(), 1);
        assert_eq!(
            invalid_field_messages(&combine_results(invalid("a"), invalid("b")).unwrap_err()).len(),
            2
        );
    }
}
