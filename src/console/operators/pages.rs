//! Pages of the operators' console: one row for each page, with the roles that may see it.

use super::routing::{LATENCY_PATH, latency_page, routing_page};
use crate::console::batches::batches_page;
use crate::console::confirmation::find_user;
use crate::console::key_list::KeyList;
use crate::console::pages::{DownloadDefinition, PageContext, PageDefinition};
use crate::console::reference::{operation_page, reference_page, schema_page};
use crate::console::usage::{recent_usage_charts, usage_page};
use crate::console::{credit_note, exports, invoice};
use penstock_console::pages::{self as blocks, UsageView, percent_encode};
use penstock_console::{Block, NoticeKind, Text};
use penstock_core::ApiError;
use penstock_storage::users::UserRole::{self, Admin, Finance, Operator, Viewer};
use serde_json::Value;

/// Number of entries on the page of the audit log.
const AUDIT_ROWS: u64 = 200;

/// All roles of the operators' console.
const EVERYONE: &[UserRole] = &[Admin, Operator, Finance, Viewer];
/// Roles that may see the pages of accounts, invoices, the ledger and the carbon report.
const MONEY: &[UserRole] = &[Admin, Finance];
/// Roles that may see the pages of routing, batches, files and the audit log.
const OPERATION: &[UserRole] = &[Admin, Operator, Viewer];

/// Definitions of all pages of the operators' console.
pub const PAGES: &[PageDefinition] = &[
    PageDefinition::new("/console/", "Overview", EVERYONE, |page| Box::pin(overview(page)))
        .with_live_updates(),
    PageDefinition::new("/console/providers", "Providers", EVERYONE, |page| Box::pin(providers(page)))
        .with_live_updates(),
    PageDefinition::new(blocks::ROUTING_PATH, "Routing", OPERATION, |page| Box::pin(routing_page(page))),
    PageDefinition::new(LATENCY_PATH, "Latency", EVERYONE, |page| Box::pin(latency_page(page))),
    PageDefinition::new("/console/usage", "Usage", EVERYONE, |page| Box::pin(usage(page))),
    PageDefinition::new("/console/accounts", "Accounts", MONEY, |page| Box::pin(accounts(page))),
    PageDefinition::new("/console/accounts/{id}", "Account", MONEY, |page| Box::pin(account(page)))
        .hidden_in_navigation(),
    PageDefinition::new("/console/accounts/{id}/usage", "Usage of", MONEY, |page| {
        Box::pin(account_usage(page))
    })
    .hidden_in_navigation(),
    PageDefinition::new("/console/accounts/{id}/invoice", "Invoice of", MONEY, |page| {
        Box::pin(account_invoice(page))
    })
    .hidden_in_navigation(),
    PageDefinition::new("/console/accounts/{id}/credit-note", "Credit note of", MONEY, |page| {
        Box::pin(account_credit_note(page))
    })
    .hidden_in_navigation(),
    PageDefinition::new("/console/ledger", "Ledger", MONEY, |page| {
        Box::pin(exports::ledger_page(page, "/console/ledger"))
    }),
    PageDefinition::new("/console/carbon", "Carbon report", MONEY, |page| {
        Box::pin(exports::carbon_page(page, "/console/carbon", true))
    }),
    PageDefinition::new("/console/batches", "Batches", OPERATION, |page| Box::pin(batches(page))),
    PageDefinition::new("/console/files", "Files", OPERATION, |page| Box::pin(files(page))),
    PageDefinition::new("/console/files/{id}", "File", OPERATION, |page| Box::pin(file(page)))
        .hidden_in_navigation(),
    PageDefinition::new("/console/configuration", "Configuration", &[Admin, Operator], |page| {
        Box::pin(configuration(page))
    }),
    PageDefinition::new("/console/audit", "Audit", OPERATION, |page| Box::pin(audit(page))),
    PageDefinition::new("/console/users", "Users", &[Admin], |page| Box::pin(users(page))),
    PageDefinition::new("/console/users/{id}", "User", &[Admin], |page| Box::pin(user(page)))
        .hidden_in_navigation(),
    PageDefinition::new("/console/api", "API", EVERYONE, |page| Box::pin(reference_page(page))),
    PageDefinition::new("/console/api/{id}", "API", EVERYONE, |page| Box::pin(operation_page(page)))
        .hidden_in_navigation(),
    PageDefinition::new("/console/api/schemas/{id}", "API", EVERYONE, |page| Box::pin(schema_page(page)))
        .hidden_in_navigation(),
];

/// All downloads: files that are not pages.
pub const DOWNLOADS: &[DownloadDefinition] = &[
    DownloadDefinition {
        path: "/console/accounts/{id}/invoice.csv",
        roles: MONEY,
        load: |page| Box::pin(invoice::invoice_csv(page, &page.id)),
    },
    DownloadDefinition {
        path: "/console/accounts/{id}/invoice.json",
        roles: MONEY,
        load: |page| Box::pin(invoice::invoice_json(page, &page.id)),
    },
    DownloadDefinition {
        path: "/console/accounts/{id}/credit-note.csv",
        roles: MONEY,
        load: |page| Box::pin(credit_note::credit_note_csv(page, &page.id)),
    },
    DownloadDefinition {
        path: "/console/accounts/{id}/credit-note.json",
        roles: MONEY,
        load: |page| Box::pin(credit_note::credit_note_json(page, &page.id)),
    },
    DownloadDefinition {
        path: "/console/usage.csv",
        roles: EVERYONE,
        load: |page| Box::pin(exports::usage_csv(page, blocks::GATEWAY_DIMENSIONS)),
    },
    DownloadDefinition {
        path: "/console/carbon.csv",
        roles: MONEY,
        load: |page| Box::pin(exports::carbon_csv(page, true)),
    },
    DownloadDefinition {
        path: "/console/reconciliation.csv",
        roles: MONEY,
        load: |page| Box::pin(exports::reconciliation_csv(page)),
    },
    DownloadDefinition {
        path: "/console/ledger.csv",
        roles: MONEY,
        load: |page| Box::pin(exports::ledger_csv(page)),
    },
];

async fn account_invoice(page: &PageContext<'_>) -> Result<Vec<Block>, ApiError> {
    invoice::invoice_page(page, &page.id, &format!("/console/accounts/{}/invoice", percent_encode(&page.id)))
        .await
}

async fn account_credit_note(page: &PageContext<'_>) -> Result<Vec<Block>, ApiError> {
    let path = format!("/console/accounts/{}/credit-note", percent_encode(&page.id));
    credit_note::credit_note_page(page, &page.id, &path).await
}

async fn overview(page: &PageContext<'_>) -> Result<Vec<Block>, ApiError> {
    let now = page.console.app.clock.unix_seconds();
    let yesterday = penstock_core::calendar::UtcDay::from_unix(now.saturating_sub(86_400)).to_string();
    let query = [("from", yesterday.as_str()), ("group_by", "hour,outcome")];
    let (status, hours) = (
        page.get_from_admin_api("/status", &[]).await?,
        page.get_from_admin_api("/admin/usage", &query).await?,
    );
    Ok(blocks::overview_blocks(&status, &hours, now, page.can_see_amounts()))
}

async fn providers(page: &PageContext<'_>) -> Result<Vec<Block>, ApiError> {
    Ok(blocks::providers_blocks(&page.get_from_admin_api("/admin/providers", &[]).await?))
}

async fn usage(page: &PageContext<'_>) -> Result<Vec<Block>, ApiError> {
    let view = UsageView { csv_path: Some("/console/usage.csv"), ..usage_view(page, "/console/usage") };
    usage_page(page, view, &[]).await
}

/// Returns the page of all figures of the usage of an account.
async fn account_usage(page: &PageContext<'_>) -> Result<Vec<Block>, ApiError> {
    let path = format!("/console/accounts/{}/usage", percent_encode(&page.id));
    usage_page(page, usage_view(page, &path), &[("account", &page.id)]).await
}

fn usage_view(page: &PageContext<'_>, path: &str) -> UsageView {
    UsageView {
        path: path.to_owned(),
        dimensions: blocks::GATEWAY_DIMENSIONS,
        with_money: page.can_see_amounts(),
        ..UsageView::default()
    }
}

async fn accounts(page: &PageContext<'_>) -> Result<Vec<Block>, ApiError> {
    let (accounts, balances) = (
        page.get_list_page("/admin/accounts", &[]).await?,
        page.get_from_admin_api("/admin/credits", &[]).await?,
    );
    let mut shown = blocks::accounts_blocks(&accounts, &balances);
    if page.has_role(&[Admin]) {
        shown.push(Block::Form(blocks::new_account_form()));
    }
    Ok(shown)
}

async fn account(page: &PageContext<'_>) -> Result<Vec<Block>, ApiError> {
    let id = page.id.as_str();
    let account = page.get_from_admin_api(&format!("/admin/accounts/{}", percent_encode(id)), &[]).await?;
    let balance = page.get_from_admin_api("/admin/credits", &[("account", id)]).await?;
    let list = KeyList::read(page, id, &format!("/console/accounts/{}", percent_encode(id))).await?;
    let is_admin = page.has_role(&[Admin]);
    let encoded = percent_encode(id);
    let links = vec![
        (format!("/console/accounts/{encoded}/usage"), "Usage".into()),
        (format!("/console/accounts/{encoded}/invoice"), "Invoice".into()),
        (format!("/console/ledger?account={encoded}"), "Ledger".into()),
        (format!("/console/carbon?account={encoded}"), "Carbon report".into()),
    ];
    let now = page.console.app.clock.unix_seconds();
    let mut shown = blocks::account_blocks(&account, &balance, &list.keys, is_admin, now);
    shown.insert(1, Block::Links(links));
    if let Some(filter) = list.filter {
        shown.insert(2, Block::Form(filter));
    }
    if is_admin {
        shown.push(Block::Form(blocks::new_key_form(&format!(
            "/console/accounts/{}/keys",
            percent_encode(id)
        ))));
    }
    if page.has_role(MONEY) {
        let unique = || format!("console-{}", crate::telemetry::request_id::RequestId::random().as_str());
        shown.push(Block::Form(blocks::grant_form(id, &unique())));
        shown.push(Block::Form(blocks::correction_form(id, &unique())));
    }
    if is_admin {
        shown.push(Block::Form(blocks::edit_account_form(&account, page.request.language)));
        shown.push(Block::Form(blocks::account_state_form(&account)));
    }
    let view = usage_view(page, &format!("/console/accounts/{encoded}/usage"));
    shown.extend(recent_usage_charts(page, view, &[("account", id)]).await?);
    Ok(shown)
}

async fn batches(page: &PageContext<'_>) -> Result<Vec<Block>, ApiError> {
    batches_page(page, "/console/", page.has_role(&[Admin, Operator])).await
}

async fn files(page: &PageContext<'_>) -> Result<Vec<Block>, ApiError> {
    Ok(blocks::files_blocks(
        &page.get_list_page("/admin/files", &[("order", "desc")]).await?,
        "/console/",
        false,
    ))
}

/// Returns the page of one file, without its contents.
async fn file(page: &PageContext<'_>) -> Result<Vec<Block>, ApiError> {
    let file = page.get_from_admin_api(&format!("/admin/files/{}", percent_encode(&page.id)), &[]).await?;
    let back = ("/console/files".to_owned(), "All files".into());
    Ok(vec![Block::Table(blocks::file_table(&file)), Block::Links(vec![back])])
}

async fn configuration(page: &PageContext<'_>) -> Result<Vec<Block>, ApiError> {
    let live = page.console.app.config_snapshot();
    let effective = live.settings.document.pretty_text();
    Ok(vec![
        Block::Notice(
            NoticeKind::Success,
            Text::with_values(
                "The running configuration has the version {0}.",
                [live.settings.version.0.to_string().into()],
            ),
        ),
        Block::Form(blocks::reload_form()),
        Block::Form(blocks::check_configuration_form()),
        Block::Code(effective),
    ])
}

async fn audit(page: &PageContext<'_>) -> Result<Vec<Block>, ApiError> {
    let check = page.get_from_admin_api("/admin/audit/verify", &[]).await?;
    let last = check.get("entries").and_then(Value::as_u64).unwrap_or(0);
    let after = last.saturating_sub(AUDIT_ROWS).to_string();
    let entries = page.get_from_admin_api("/admin/audit", &[("after", &after)]).await?;
    Ok(blocks::audit_blocks(&entries, &check, page.can_see_amounts()))
}

/// Returns the page of one user, with the form that changes the role.
async fn user(page: &PageContext<'_>) -> Result<Vec<Block>, ApiError> {
    let user = &find_user(page, &page.id).await?;
    Ok(vec![
        Block::Table(blocks::user_table(user)),
        Block::Form(blocks::user_role_form(user)),
        Block::Links(vec![("/console/users".to_owned(), "All users".into())]),
    ])
}

async fn users(page: &PageContext<'_>) -> Result<Vec<Block>, ApiError> {
    let mut shown = blocks::users_blocks(&page.get_from_admin_api("/admin/users", &[]).await?);
    shown.push(Block::Form(blocks::invite_user_form()));
    Ok(shown)
}
