// Cases of the account holders' dashboard in a browser. Each case ends the run if it fails.
import assert from "node:assert/strict";
import { chromium } from "playwright-core";
import { ask, check, choosePassword, inspectPages, passed, problems, violations, watch } from "./shared.mjs";

const { PENSTOCK_KEY: key } = process.env;

const browser = await chromium.launch({ executablePath: process.env.PENSTOCK_CHROMIUM, args: ["--no-sandbox"] });
try {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 } });
  const page = await context.newPage();
  watch(page);
  const root = `${new URL(process.env.PENSTOCK_HOLDER).origin}/dashboard/`;

  await check("an account holder chooses a password and is signed in", async () => {
    assert.equal(await ask(key, 4), 200);
    await choosePassword(page, process.env.PENSTOCK_HOLDER);
    assert.match(await page.locator("header").innerText(), /eve\s*\(account\)/);
  });
  const own = key.slice("sk-svc-".length).slice(0, 16);
  const pages = ["", "keys", `keys/${own}`, "usage", "usage?by=key", "statement", "invoice", "batches", "files"];
  await inspectPages(page, root, pages, "dashboard-");
  await check("a key is created in the page, used, rotated, and revoked in the page", async () => {
    await page.setViewportSize({ width: 1280, height: 800 });
    await page.goto(`${root}keys`);
    const form = page.locator("form.fields", { hasText: "New key" });
    await form.locator("input[name=name]").fill("<b>own</b>");
    await form.locator("input[name=budget_per_month]").fill("5");
    await form.getByRole("button", { name: "Create" }).click();
    const secret = await page.locator("p[role=status] code").innerText();
    assert.match(secret, /^sk-svc-/);
    assert.equal(await ask(secret), 200);
    await page.getByRole("link", { name: "<b>own</b>" }).click();
    await page.locator("select[name=overlap_seconds]").selectOption("0");
    await page.getByRole("button", { name: "Rotate" }).click();
    const fresh = await page.locator("p[role=status] code").innerText();
    assert.equal(await ask(secret), 401);
    assert.equal(await ask(fresh), 200);
    await page.getByRole("button", { name: "Revoke" }).click();
    await page.locator("p[role=status]", { hasText: "was revoked" }).waitFor();
    assert.equal(await ask(fresh), 401);
    assert.deepEqual(await violations(page), []);
    await page.goto(`${root}keys`);
    const content = await page.content();
    assert.ok(!content.includes(secret) && !content.includes(fresh));
  });
  await check("a refused form keeps what was typed", async () => {
    const form = page.locator("form.fields", { hasText: "New key" });
    await form.locator("input[name=name]").fill("Kept");
    await form.locator("input[name=requests_per_minute]").fill("many");
    await form.getByRole("button", { name: "Create" }).click();
    const refused = page.locator("form.fields").first();
    assert.equal(await refused.locator("input[name=name]").inputValue(), "Kept");
    assert.match(await refused.locator(".error").innerText(), /whole number/);
    assert.deepEqual(await violations(page), []);
  });
  await check("a statement is saved as CSV", async () => {
    await page.goto(`${root}statement`);
    const saving = page.waitForEvent("download");
    await page.getByRole("link", { name: "CSV, semicolon and decimal comma" }).click();
    assert.match((await saving).suggestedFilename(), /^statement-\d{4}-\d{2}\.csv$/);
  });
  await check("a sign-out ends the session on the server", async () => {
    const state = await context.storageState();
    await page.getByRole("button", { name: "Sign out" }).click();
    await page.waitForURL("**/dashboard/sign-in");
    assert.deepEqual(await violations(page), []);
    const old = await browser.newContext({ storageState: state });
    const again = await old.newPage();
    await again.goto(root);
    assert.ok(again.url().endsWith("/dashboard/sign-in"));
    await old.close();
  });
  await check("no script failed and no policy was violated", async () => assert.deepEqual(problems, []));
  console.log(`dashboard: ${passed} passed, 0 failed`);
} finally {
  await browser.close();
}
