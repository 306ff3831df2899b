//! Pages and downloads of the dashboard.

use super::{HOLDERS, playground};
use crate::console::answer::{ConsoleAnswer, download_answer, refused_form_blocks};
use crate::console::batches::batches_page;
use crate::console::credit_note;
use crate::console::exports;
use crate::console::file_download::FileDownload;
use crate::console::invoice::{self, csv_style, key_names};
use crate::console::key_list::KeyList;
use crate::console::pages::{DownloadDefinition, PageContext, PageDefinition};
use crate::console::reference::{operation_page, reference_page, schema_page};
use crate::console::usage::usage_page;
use penstock_console::pages::{self as blocks, ACCOUNT_DIMENSIONS, UsageView, percent_encode};
use penstock_console::{Block, Text};
use penstock_core::ApiError;
use serde_json::{Value, json};

/// Definitions of all pages of the dashboard.
pub const PAGES: &[PageDefinition] = &[
    PageDefinition::new("/dashboard/", "Overview", HOLDERS, |page| Box::pin(overview(page))),
    PageDefinition::new("/dashboard/keys", "Keys", HOLDERS, |page| Box::pin(keys(page))),
    PageDefinition::new("/dashboard/keys/{id}", "Key", HOLDERS, |page| Box::pin(key(page)))
        .hidden_in_navigation(),
    PageDefinition::new(playground::PLAYGROUND_PATH, "Playground", HOLDERS, |page| {
        Box::pin(playground::playground_page(page))
    }),
    PageDefinition::new("/dashboard/usage", "Usage", HOLDERS, |page| Box::pin(usage(page))),
    PageDefinition::new("/dashboard/statement", "Statement", HOLDERS, |page| Box::pin(statement(page))),
    PageDefinition::new("/dashboard/invoice", "Invoice", HOLDERS, |page| {
        Box::pin(invoice::invoice_page(page, account(page), "/dashboard/invoice"))
    }),
    PageDefinition::new("/dashboard/credit-note", "Credit note", HOLDERS, |page| {
        Box::pin(credit_note::credit_note_page(page, account(page), "/dashboard/credit-note"))
    })
    .hidden_in_navigation(),
    PageDefinition::new("/dashboard/carbon", "Carbon report", HOLDERS, |page| {
        Box::pin(exports::carbon_page(page, "/dashboard/carbon", false))
    }),
    PageDefinition::new("/dashboard/batches", "Batches", HOLDERS, |page| {
        Box::pin(batches_page(page, "/dashboard/", true))
    }),
    PageDefinition::new("/dashboard/files", "Files", HOLDERS, |page| Box::pin(files(page))),
    PageDefinition::new("/dashboard/api", "API", HOLDERS, |page| Box::pin(reference_page(page))),
    PageDefinition::new("/dashboard/api/{id}", "API", HOLDERS, |page| Box::pin(operation_page(page)))
        .hidden_in_navigation(),
    PageDefinition::new("/dashboard/api/schemas/{id}", "API", HOLDERS, |page| Box::pin(schema_page(page)))
        .hidden_in_navigation(),
];

/// All downloads: files that are not pages.
pub const DOWNLOADS: &[DownloadDefinition] = &[
    DownloadDefinition {
        path: "/dashboard/statement.csv",
        roles: HOLDERS,
        load: |page| Box::pin(statement_csv(page)),
    },
    DownloadDefinition {
        path: "/dashboard/statement.json",
        roles: HOLDERS,
        load: |page| Box::pin(statement_json(page)),
    },
    DownloadDefinition {
        path: "/dashboard/invoice.csv",
        roles: HOLDERS,
        load: |page| Box::pin(invoice::invoice_csv(page, account(page))),
    },
    DownloadDefinition {
        path: "/dashboard/invoice.json",
        roles: HOLDERS,
        load: |page| Box::pin(invoice::invoice_json(page, account(page))),
    },
    DownloadDefinition {
        path: "/dashboard/credit-note.csv",
        roles: HOLDERS,
        load: |page| Box::pin(credit_note::credit_note_csv(page, account(page))),
    },
    DownloadDefinition {
        path: "/dashboard/credit-note.json",
        roles: HOLDERS,
        load: |page| Box::pin(credit_note::credit_note_json(page, account(page))),
    },
    DownloadDefinition {
        path: "/dashboard/files/{id}/content",
        roles: HOLDERS,
        load: |page| Box::pin(async { Ok(download_answer(FileDownload::open(page).await?)) }),
    },
    DownloadDefinition {
        path: "/dashboard/usage.csv",
        roles: HOLDERS,
        load: |page| Box::pin(exports::usage_csv(page, ACCOUNT_DIMENSIONS)),
    },
    DownloadDefinition {
        path: "/dashboard/carbon.csv",
        roles: HOLDERS,
        load: |page| Box::pin(exports::carbon_csv(page, false)),
    },
];

async fn overview(page: &PageContext<'_>) -> Result<Vec<Block>, ApiError> {
    let account =
        page.get_from_admin_api(&format!("/admin/accounts/{}", percent_encode(account(page))), &[]).await?;
    let balance = page.get_from_admin_api("/admin/credits", &[]).await?;
    let usage = page.get_from_admin_api("/admin/usage", &[("group_by", "day,model")]).await?;
    Ok(blocks::dashboard_overview_blocks(&account, &balance, &usage))
}

async fn keys(page: &PageContext<'_>) -> Result<Vec<Block>, ApiError> {
    let list = KeyList::read(page, account(page), "/dashboard/keys").await?;
    let now = page.console.app.clock.unix_seconds();
    let mut shown: Vec<Block> = list.filter.map(Block::Form).into_iter().collect();
    shown.extend(blocks::dashboard_keys_blocks(&list.keys, "/dashboard/", now));
    shown.push(Block::Form(blocks::new_key_form("/dashboard/keys")));
    Ok(shown)
}

async fn key(page: &PageContext<'_>) -> Result<Vec<Block>, ApiError> {
    let path = format!("keys/{}", percent_encode(&page.id));
    let key = page.get_from_admin_api(&format!("/admin/{path}"), &[]).await?;
    let name = key.get("name").and_then(Value::as_str).filter(|name| !name.is_empty());
    if let Some(name) = name {
        page.set_title(Text::with_values("{0} {1}", ["Key".into(), name.to_owned().into()]));
    }
    let now = page.console.app.clock.unix_seconds();
    let mut shown = blocks::dashboard_key_blocks(&key, "/dashboard/", now, page.request.language);
    let view = UsageView {
        path: format!("/dashboard/{path}"),
        dimensions: ACCOUNT_DIMENSIONS,
        with_money: true,
        ..UsageView::default()
    };
    shown.extend(usage_page(page, view, &[("key", &page.id)]).await?);
    Ok(shown)
}

async fn usage(page: &PageContext<'_>) -> Result<Vec<Block>, ApiError> {
    let view = UsageView {
        path: "/dashboard/usage".to_owned(),
        dimensions: ACCOUNT_DIMENSIONS,
        key_names: key_names(page, account(page)).await?,
        with_money: true,
        csv_path: Some("/dashboard/usage.csv"),
        ..UsageView::default()
    };
    usage_page(page, view, &[]).await
}

async fn files(page: &PageContext<'_>) -> Result<Vec<Block>, ApiError> {
    Ok(blocks::files_blocks(
        &page.get_list_page("/admin/files", &[("order", "desc")]).await?,
        "/dashboard/",
        true,
    ))
}

/// Returns the account of the signed-in person.
fn account<'p>(page: &'p PageContext<'_>) -> &'p str {
    page.active.user.account.as_deref().unwrap_or_default()
}

/// Returns the statement of the period of the query: a month, or first and last day; the present month by default.
async fn read_statement(page: &PageContext<'_>) -> Result<Value, ApiError> {
    let given =
        ["month", "from", "to"].map(|name| (name, page.request.query_parameter(name).unwrap_or_default()));
    let query: Vec<(&str, &str)> = given.into_iter().filter(|(_, value)| !value.is_empty()).collect();
    page.get_from_admin_api("/admin/statement", &query).await
}

/// Returns seller and customer of a statement. If the configuration has no customer for the account, the customer has
/// the account's name.
async fn statement_parties(page: &PageContext<'_>) -> Result<Value, ApiError> {
    let account = account(page);
    let mut parties = exports::report_parties(page, &json!({ "account": account }));
    if parties.get("customer").is_none_or(Value::is_null) {
        let record =
            page.get_from_admin_api(&format!("/admin/accounts/{}", percent_encode(account)), &[]).await?;
        let name = record.get("name").and_then(Value::as_str).unwrap_or(account);
        if let Some(members) = parties.as_object_mut() {
            members.insert("customer".to_owned(), json!({ "name": name }));
        }
    }
    Ok(parties)
}

async fn statement(page: &PageContext<'_>) -> Result<Vec<Block>, ApiError> {
    const PATH: &str = "/dashboard/statement";
    match read_statement(page).await {
        Ok(statement) => {
            let day = |name: &str| statement.get(name).and_then(Value::as_str).unwrap_or_default();
            let shown =
                [Block::Form(blocks::statement_period_form(PATH, day("from"), day("to")))].into_iter();
            let (parties, names) = (statement_parties(page).await?, key_names(page, account(page)).await?);
            Ok(shown.chain(blocks::statement_blocks(&statement, &parties, &names, PATH)).collect())
        }
        Err(refusal) if refusal.param.is_some() => {
            let given = |name: &str| page.request.query_parameter(name).unwrap_or_default();
            let mut form = blocks::statement_period_form(PATH, given("from"), given("to"));
            form.restore_values(&[], refusal.param.as_deref().map(|field| (field, &*refusal.message)));
            Ok(refused_form_blocks(form, &refusal))
        }
        Err(refusal) => Err(refusal),
    }
}

async fn statement_csv(page: &PageContext<'_>) -> Result<ConsoleAnswer, ApiError> {
    let style = csv_style(page)?;
    let statement = read_statement(page).await?;
    let text = blocks::statement_csv(&statement, Some(&key_names(page, account(page)).await?), style);
    let name = statement_file(&statement, "csv");
    Ok(ConsoleAnswer::attachment_answer("text/csv; charset=utf-8", name, text.into_bytes()))
}

async fn statement_json(page: &PageContext<'_>) -> Result<ConsoleAnswer, ApiError> {
    let statement = read_statement(page).await?;
    let text = serde_json::to_vec_pretty(&statement).unwrap_or_default();
    Ok(ConsoleAnswer::attachment_answer("application/json", statement_file(&statement, "json"), text))
}

/// Returns the file name of a statement, with its month or its days.
fn statement_file(statement: &Value, ending: &str) -> String {
    let member = |name: &str| statement.get(name).and_then(Value::as_str);
    let days = || format!("{}-{}", member("from").unwrap_or_default(), member("to").unwrap_or_default());
    format!("statement-{}.{ending}", member("month").map_or_else(days, str::to_owned))
}
