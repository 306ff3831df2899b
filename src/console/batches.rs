//! Page of batches, for any site: a plot of the grid's carbon intensity in the last day, and below it the list of
//! batches.

use super::pages::PageContext;
use penstock_console::Block;
use penstock_console::pages as blocks;
use penstock_core::ApiError;
use serde_json::Value;

/// Returns the blocks of a page of batches. `root` is the path of the site.
///
/// # Errors
/// Returns the refusal of the admin API for the list. Without the data of the plot, the list is shown alone.
pub async fn batches_page(
    page: &PageContext<'_>,
    root: &str,
    may_cancel: bool,
) -> Result<Vec<Block>, ApiError> {
    let (grid, batches) =
        (page.get_from_admin_api("/admin/grid", &[]).await, page.get_list_page("/admin/batches", &[]).await?);
    let list = blocks::batches_blocks(&batches, root, may_cancel, page.console.app.clock.unix_seconds());
    Ok(page_blocks(grid.ok().as_ref(), list))
}

fn page_blocks(grid: Option<&Value>, list: Vec<Block>) -> Vec<Block> {
    let mut shown = grid.map(blocks::grid_intensity_blocks).unwrap_or_default();
    shown.extend(list);
    shown
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing)]
    use super::*;
    use serde_json::json;

    #[test]
    fn the_list_is_shown_without_the_plot_if_its_data_cannot_be_read() {
        let batches = json!({ "data": [{ "id": "batch_1", "status": "in_progress" }], "has_more": false });
        let zone = json!({ "zone": "FR", "g_per_kwh": [30], "batch_requests": [1] });
        let grid = json!({ "hours": ["2026-11-27T13:00:00Z"], "data": [zone] });
        let list = || blocks::batches_blocks(&batches, "/console/", true, 0);
        let with_plot = page_blocks(Some(&grid), list());
        let alone = page_blocks(None, list());
        assert!(matches!(with_plot[0], Block::LineChart(_)), "{with_plot:?}");
        assert!(!alone.is_empty() && format!("{alone:?}").contains("batch_1"), "{alone:?}");
        assert_eq!(format!("{alone:?}"), format!("{:?}", &with_plot[1..]));
    }
}
