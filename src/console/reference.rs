//! Pages of the API reference, on the operators' console and on the account dashboard: operations, parameters, schemas
//! and errors of the public API.

use super::pages::PageContext;
use crate::proxy::endpoint::openapi;
use penstock_console::pages as blocks;
use penstock_console::{Block, Text};
use penstock_core::{ApiError, ErrorCode};

/// Returns the list of all operations and schemas.
///
/// # Errors
/// Returns no error.
pub async fn reference_page(page: &PageContext<'_>) -> Result<Vec<Block>, ApiError> {
    Ok(blocks::api_reference_blocks(openapi::cached_document(), page.console.site.root))
}

/// Returns the page of one operation.
///
/// # Errors
/// Returns 404 if there is no such operation.
pub async fn operation_page(page: &PageContext<'_>) -> Result<Vec<Block>, ApiError> {
    let found = blocks::operation_blocks(openapi::cached_document(), &page.id, page.console.site.root);
    let (title, shown) = found.ok_or_else(|| ApiError::new(ErrorCode::NotFound))?;
    page.set_title(title);
    Ok(shown)
}

/// Returns the page of one schema.
///
/// # Errors
/// Returns 404 if there is no such schema.
pub async fn schema_page(page: &PageContext<'_>) -> Result<Vec<Block>, ApiError> {
    let found = blocks::schema_blocks(openapi::cached_document(), &page.id, page.console.site.root);
    let shown = found.ok_or_else(|| ApiError::new(ErrorCode::NotFound))?;
    page.set_title(Text::with_values("{0} {1}", ["Schema".into(), page.id.clone().into()]));
    Ok(shown)
}
